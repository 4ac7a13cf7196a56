import { cividis } from "../../lib/cividis";

/** The mark of an arm in charts: a shape and a color. */
export type Mark = { shape: number; colour: string };

const SHAPES = 5;
const COLOURS = ["var(--accent)", "var(--softirq)", "var(--ok)", "var(--tx)", "var(--bad)", "var(--user)"];

/** The mark of an arm by its index; beyond the palette, colors are taken from the scale. */
export function markOf(place: number, of: number): Mark {
  const colour = of <= COLOURS.length ? COLOURS[place] : `rgb(${cividis(0.2 + (0.8 * place) / (of - 1)).join(" ")})`;
  return { shape: place % SHAPES, colour: colour ?? "var(--muted)" };
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
