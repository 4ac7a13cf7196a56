/** The mark of an arm in charts: a shape and a color. */
export type Mark = { shape: number; colour: string };

const SHAPES = 5;
const COLOURS = ["var(--accent)", "var(--softirq)", "var(--ok)", "var(--tx)", "var(--bad)", "var(--user)"];

/** The mark of an arm by its index; 30 arms differ, as 5 shapes and 6 colors have no common divisor. */
export function markOf(place: number): Mark {
  return { shape: place % SHAPES, colour: COLOURS[place % COLOURS.length] ?? "var(--muted)" };
}

const R = 4;
const PATHS = [
  `M${-R} 0a${R} ${R} 0 1 0 ${2 * R} 0a${R} ${R} 0 1 0 ${-2 * R} 0`,
  `M${-R} ${-R}h${2 * R}v${2 * R}h${-2 * R}z`,
  `M0 ${-R - 1}L${R + 1} ${R}H${-R - 1}z`,
  `M0 ${-R - 1.5}L${R + 1.5} 0L0 ${R + 1.5}L${-R - 1.5} 0z`,
  `M0 ${R + 1}L${R + 1} ${-R}H${-R - 1}z`,
];
export const shapePath = (shape: number): string => PATHS[shape] ?? (PATHS[0] as string);

/** An arm's mark in a legend. */
export function MarkIcon({ mark }: { mark: Mark }) {
  return (
    <svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">
      <path d={shapePath(mark.shape)} fill={mark.colour} />
    </svg>
  );
}
