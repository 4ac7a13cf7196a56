import type { Part } from "./charted";

/** The fill of a part of system time: a color and a pattern, so that neither alone carries the meaning. */
const FILLS: Record<Part, { colour: string; lines: string | null }> = {
  compute: { colour: "var(--user)", lines: null },
  idle: { colour: "var(--line-strong)", lines: "M0 3H6" },
  spin: { colour: "var(--softirq)", lines: "M-1 7L7 -1M-1 1L1 -1M5 7L7 5" },
  switch: { colour: "var(--change)", lines: "M3 0V6" },
  overhead: { colour: "var(--irq)", lines: "M0 0L6 6M6 0L0 6" },
};
const PARTS = Object.keys(FILLS) as Part[];

/** The definitions of the fills for one chart. id: unique on the page. */
export function PartFills({ id }: { id: string }) {
  return (
    <defs>
      {PARTS.map((part) => {
        const { colour, lines } = FILLS[part];
        return (
          <pattern key={part} id={`${id}-${part}`} width="6" height="6" patternUnits="userSpaceOnUse">
            <rect width="6" height="6" style={{ fill: colour }} />
            {lines !== null && (
              <path d={lines} style={{ stroke: "var(--panel)" }} strokeWidth="1" strokeOpacity="0.75" />
            )}
          </pattern>
        );
      })}
    </defs>
  );
}

/** The fill attribute of a part, from the definitions with this id. */
export const fillOf = (id: string, part: Part): string => `url(#${id}-${part})`;

/** A part's fill in a legend. */
export function PartIcon({ id, part }: { id: string; part: Part }) {
  return (
    <svg width="16" height="12" aria-hidden="true">
      <PartFills id={id} />
      <rect width="16" height="12" rx="2" fill={fillOf(id, part)} />
    </svg>
  );
}
