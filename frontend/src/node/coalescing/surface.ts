/** Scale, cells and texts of the coalescing trade-off, without drawing. */

import { BOUNDS, INTERRUPT_COST_US } from "../../api/constants";
import { duration, type Figure, formatCount, formatFigure, micros, perSecond, ratio } from "../../lib/format";
import type { Coalescing, Surface } from "./nicParams";

export type Colour = "interrupts" | "latency";
export type Cell = { row: number; column: number };
type Predicted = NonNullable<Surface["predicted"][number][number]>;
type Point = Coalescing["points"][number];

/** The figure that a cell's colour shows: interrupts/s or added latency p99 in µs. */
export function amountOf(predicted: Predicted, colour: Colour): number {
  return colour === "interrupts" ? predicted.interrupts_per_s : predicted.added_p99_us;
}

export function figureOf(amount: number, colour: Colour): Figure {
  return colour === "interrupts" ? perSecond(amount) : micros(amount);
}

/** What the colour scale reaches at least: interrupts/s that take half of a CPU, and the latency that a policy allows by default. */
const MATTERS: Record<Colour, number> = {
  interrupts: 0.5e6 / INTERRUPT_COST_US,
  latency: BOUNDS.CoalescingPolicy.max_added_us.default,
};

/**
 * The ends of the colour scale: 1, 2 or 5 × 10ⁿ around all amounts ≥ 1, with a ratio of at least 5. It reaches at least
 * an amount that matters, so that an idle NIC has the colours of few interrupts.
 */
export function scaleOf(surface: Surface, colour: Colour): [min: number, max: number] {
  let [min, max] = [Number.POSITIVE_INFINITY, MATTERS[colour]];
  for (const line of surface.predicted)
    for (const predicted of line) {
      if (predicted === null) continue;
      const amount = Math.max(1, amountOf(predicted, colour));
      min = Math.min(min, amount);
      max = Math.max(max, amount);
    }
  const low = STEPS.findLast((step) => step <= min) ?? 1;
  return [low, STEPS.find((step) => step >= max && step >= 5 * low) ?? max];
}

const STEPS = Array.from({ length: 10 }, (_, power) => [1, 2, 5].map((step) => step * 10 ** power)).flat();

/** Up to this factor the model may differ from the measurement. */
const MAX_ERROR = 2;

/**
 * Measured over predicted interrupts/s with the present values and traffic, if they differ by more than a factor of 2;
 * null if they agree, and without both.
 */
export function modelError({ traffic, current }: Coalescing): number | null {
  const predicted = current.predicted?.interrupts_per_s ?? 0;
  if (!traffic?.measured_s || !current.interrupts_per_s || predicted === 0) return null;
  const error = current.interrupts_per_s / predicted;
  return error > MAX_ERROR || error < 1 / MAX_ERROR ? error : null;
}

/**
 * The predictions, with their interrupts scaled to the measurement where the model differs from it too much. That of the
 * present values is the one that is compared with the measurement: it is of more packets than those of the surface.
 */
export function anchoredSurface(coalescing: Coalescing): Surface | null {
  const { surface, current } = coalescing;
  if (surface === null) return null;
  const error = modelError(coalescing) ?? 1;
  const anchored = (predicted: Predicted): Predicted => ({
    ...predicted,
    interrupts_per_s: predicted.interrupts_per_s * error,
    packets_per_interrupt: predicted.packets_per_interrupt / error,
  });
  const now = current.adaptive ? null : cellOf(surface, current.rx_usecs, current.rx_frames);
  const predicted = surface.predicted.map((line, row) =>
    line.map((cell, column) => {
      const isNow = now?.row === row && now.column === column && surface.rx_usecs[column] === current.rx_usecs;
      return cell && anchored((isNow ? current.predicted : null) ?? cell);
    }),
  );
  return { ...surface, predicted };
}

/** An amount's position on the logarithmic scale, 0 to 1. */
export function scalePosition(amount: number, [min, max]: [number, number]): number {
  const position = Math.log10(Math.max(min, amount) / min) / Math.log10(max / min);
  return Math.min(1, position);
}

/** Whether the longest wait exceeds the bound in µs; null: no bound. */
export function exceedsBound(surface: Surface, { row, column }: Cell, allowedUs: number | null): boolean {
  if (allowedUs === null) return false;
  const bound = surface.bound_us[row]?.[column] ?? null;
  return bound === null || bound > allowedUs;
}

/** A value's position among sorted values as a fractional index, interpolated linearly and limited to the ends. */
export function fractionalIndex(values: number[], value: number): number {
  const after = values.findIndex((other) => other >= value);
  if (after === -1) return values.length - 1;
  const [low, high] = [values[after - 1], values[after]];
  if (low === undefined || high === undefined || high === value) return after;
  return after - 1 + (value - low) / (high - low);
}

/** The cell nearest to values; null where a needed value is null. */
export function cellOf(surface: Surface, rxUsecs: number | null, rxFrames: number | null): Cell | null {
  if (rxUsecs === null || (surface.rx_frames.length > 0 && rxFrames === null)) return null;
  const row = surface.rx_frames.length === 0 ? 0 : Math.round(fractionalIndex(surface.rx_frames, rxFrames ?? 0));
  return { row, column: Math.round(fractionalIndex(surface.rx_usecs, rxUsecs)) };
}

/** A cell's values: `rx-usecs 54, rx-frames 32`. */
export function cellValues(surface: Surface, { row, column }: Cell): string {
  const frames = surface.rx_frames[row];
  return `rx-usecs ${surface.rx_usecs[column]}${frames === undefined ? "" : `, rx-frames ${frames}`}`;
}

/** The prediction for a cell in one sentence. */
export function describeCell(surface: Surface, cell: Cell, allowedUs: number | null): string {
  const predicted = surface.predicted[cell.row]?.[cell.column];
  const values = cellValues(surface, cell);
  if (!predicted) return `${values}: a driver mode, not a time; no prediction.`;
  const bound = surface.bound_us[cell.row]?.[cell.column] ?? null;
  const product = surface.product_us[cell.row]?.[cell.column] ?? null;
  return [
    `${values}: ${formatFigure(perSecond(predicted.interrupts_per_s))},`,
    `${formatFigure(ratio(predicted.packets_per_interrupt))} packets/interrupt;`,
    `adds ${formatFigure(micros(predicted.added_mean_us))} mean, ${formatFigure(micros(predicted.added_p99_us))} p99,`,
    `${bound === null ? "unbounded if no packet follows" : `${formatFigure(micros(bound))} max`}`,
    product === null ? "" : `(rx-usecs × rx-frames: ${formatFigure(micros(product))})`,
    predicted.dropped_share > 0 ? `; ${(100 * predicted.dropped_share).toFixed(1)} % dropped` : "",
    exceedsBound(surface, cell, allowedUs) ? "; exceeds the bound" : "",
  ]
    .filter(Boolean)
    .join(" ")
    .replaceAll(" ;", ";")
    .concat(".");
}

/** A measured point in one sentence. */
export function describePoint(point: Point): string {
  const { interrupts_per_s, predicted_interrupts_per_s, packets_per_s, rtt_p50_us, dropped_per_s } = point;
  return [
    `Measured${point.adaptive ? " with adaptive-rx on" : ""}: ${formatFigure(perSecond(interrupts_per_s))}`,
    ` at ${formatCount(Math.round(packets_per_s), "packet")}/s for ${duration(point.seconds)}`,
    predicted_interrupts_per_s === null ? "" : `, predicted ${formatFigure(perSecond(predicted_interrupts_per_s))}`,
    rtt_p50_us === null ? "" : `, RTT p50 ${formatFigure(micros(rtt_p50_us))}`,
    dropped_per_s > 0 ? `, ${formatFigure(perSecond(dropped_per_s))} dropped` : "",
    ".",
  ].join("");
}

/** The latency bound in µs: the URL's, else the lowest of the policies'; null without one. */
export function latencyBoundUs({ bounds }: Coalescing, bound: number | undefined): number | null {
  if (bound !== undefined) return bound;
  return bounds.length === 0 ? null : Math.min(...bounds.map(({ max_added_us }) => max_added_us));
}
