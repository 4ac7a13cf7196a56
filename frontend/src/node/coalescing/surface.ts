/** What the picture of a trade-off shows and says, apart from how it is drawn. */

import { count, duration, type Figure, micros, perSecond, ratio, text } from "../../lib/format";
import type { Coalescing, Surface } from "./nicParams";

export type Colour = "interrupts" | "latency";
export type Cell = { row: number; column: number };
type Predicted = NonNullable<Surface["predicted"][number][number]>;
type Point = Coalescing["points"][number];

/** What a cell's colour stands for. */
export function amountOf(predicted: Predicted, colour: Colour): number {
  return colour === "interrupts" ? predicted.interrupts_per_s : predicted.added_p99_us;
}

export function figureOf(amount: number, colour: Colour): Figure {
  return colour === "interrupts" ? perSecond(amount) : micros(amount);
}

/** The ends of the colour scale around all amounts from 1 on, as 1, 2 or 5 times a power of ten; five times apart at least. */
export function scaleOf(surface: Surface, colour: Colour): [least: number, most: number] {
  let [least, most] = [Number.POSITIVE_INFINITY, 1];
  for (const line of surface.predicted)
    for (const predicted of line) {
      if (predicted === null) continue;
      const amount = Math.max(1, amountOf(predicted, colour));
      least = Math.min(least, amount);
      most = Math.max(most, amount);
    }
  const low = STEPS.findLast((step) => step <= least) ?? 1;
  return [low, STEPS.find((step) => step >= most && step >= 5 * low) ?? most];
}

const STEPS = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

/** An amount's place on the scale, 0 to 1, logarithmic. */
export function scalePosition(amount: number, [least, most]: [number, number]): number {
  const place = Math.log10(Math.max(least, amount) / least) / Math.log10(most / least);
  return Math.min(1, place);
}

/** Whether a packet may wait longer than is allowed; null allows everything. */
export function isBeyond(surface: Surface, { row, column }: Cell, allowedUs: number | null): boolean {
  if (allowedUs === null) return false;
  const bound = surface.bound_us[row]?.[column] ?? null;
  return bound === null || bound > allowedUs;
}

/** Where a value is among sorted ones, as a fraction of places: between two of them by its ratio to both. */
export function placeOf(values: number[], value: number): number {
  const after = values.findIndex((other) => other >= value);
  if (after === -1) return values.length - 1;
  const [low, high] = [values[after - 1], values[after]];
  if (low === undefined || high === undefined || high === value) return after;
  return after - 1 + (value - low) / (high - low);
}

/** The cell of values that stand, were measured or were picked; null where they have no place. */
export function cellOf(surface: Surface, rxUsecs: number | null, rxFrames: number | null): Cell | null {
  if (rxUsecs === null || (surface.rx_frames.length > 0 && rxFrames === null)) return null;
  const row = surface.rx_frames.length === 0 ? 0 : Math.round(placeOf(surface.rx_frames, rxFrames ?? 0));
  return { row, column: Math.round(placeOf(surface.rx_usecs, rxUsecs)) };
}

/** A cell's values in words: `rx-usecs 54, rx-frames 32`. */
export function cellValues(surface: Surface, { row, column }: Cell): string {
  const frames = surface.rx_frames[row];
  return `rx-usecs ${surface.rx_usecs[column]}${frames === undefined ? "" : `, rx-frames ${frames}`}`;
}

/** What the model says of a cell, in one sentence. */
export function describeCell(surface: Surface, cell: Cell, allowedUs: number | null): string {
  const predicted = surface.predicted[cell.row]?.[cell.column];
  const values = cellValues(surface, cell);
  if (!predicted)
    return `${values}: no time, but a mode in which the driver sets its own pace; the model says nothing.`;
  const bound = surface.bound_us[cell.row]?.[cell.column] ?? null;
  const product = surface.product_us[cell.row]?.[cell.column] ?? null;
  return [
    `${values}: ${text(perSecond(predicted.interrupts_per_s))},`,
    `${text(ratio(predicted.packets_per_interrupt))} packets an interrupt;`,
    `adds ${text(micros(predicted.added_mean_us))} in the mean, ${text(micros(predicted.added_p99_us))} p99,`,
    `${bound === null ? "without an end where no packet follows" : `${text(micros(bound))} at most`}`,
    product === null ? "" : `(rx-usecs × rx-frames: ${text(micros(product))})`,
    predicted.dropped_share > 0 ? `; ${(100 * predicted.dropped_share).toFixed(1)} % dropped` : "",
    isBeyond(surface, cell, allowedUs) ? "; beyond the bound" : "",
  ]
    .filter(Boolean)
    .join(" ")
    .replaceAll(" ;", ";")
    .concat(".");
}

/** What was measured while values stood. */
export function describePoint(point: Point): string {
  const { interrupts_per_s, predicted_interrupts_per_s, packets_per_s, rtt_p50_us, dropped_per_s } = point;
  return [
    `Measured${point.adaptive ? " with adaptive-rx on" : ""}: ${text(perSecond(interrupts_per_s))}`,
    ` at ${count(Math.round(packets_per_s), "packet")} a second for ${duration(point.seconds)}`,
    predicted_interrupts_per_s === null ? "" : `, model ${text(perSecond(predicted_interrupts_per_s))}`,
    rtt_p50_us === null ? "" : `, round trip p50 ${text(micros(rtt_p50_us))}`,
    dropped_per_s > 0 ? `, ${text(perSecond(dropped_per_s))} dropped` : "",
    ".",
  ].join("");
}

/** The bound that is in sight: what the URL has, else the strictest of the policies'; null where there is none. */
export function allowedOf({ bounds }: Coalescing, bound: number | undefined): number | null {
  if (bound !== undefined) return bound;
  return bounds.length === 0 ? null : Math.min(...bounds.map(({ max_added_us }) => max_added_us));
}
