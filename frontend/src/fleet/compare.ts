/** A figure next to what it was before. */

import { METRICS } from "../api/metrics";
import { formatCount, formatFigure } from "../lib/format";
import { type FleetMetric, formatOf } from "../lib/metrics";

/** Differences below these are usual: of shares in percentage points, of others relative to the value before. */
const LEAST_POINTS = 5;
const LEAST_SHARE = 0.1;

export type Difference = { text: string; isWorse: boolean };

const signed = (value: number, text: string) => `${value < 0 ? "−" : "+"}${text}`;
const percentage = (share: number) => `${Math.round(Math.abs(share) * 100).toLocaleString("en")}\u00a0%`;

/** How a figure differs from before: `+120 Mbit/s, +15 %`; null where one of them is unknown. */
export function difference(metric: FleetMetric, value: number, before: number): Difference | null {
  if (Number.isNaN(value) || Number.isNaN(before)) return null;
  const { unit, better } = METRICS[metric];
  const by = value - before;
  const absolute =
    unit === "%"
      ? formatCount(Math.round(Math.abs(by)), "point").replace(" ", "\u00a0")
      : formatFigure(formatOf(metric)(Math.abs(by)));
  if (/^0\D*$/.test(absolute)) return { text: "±0", isWorse: false };
  const relative = before === 0 ? "" : `, ${signed(by, percentage(by / before))}`;
  const isLarge = unit === "%" ? Math.abs(by) >= LEAST_POINTS : Math.abs(by) >= LEAST_SHARE * Math.abs(before);
  const isWorse = isLarge && ((better === "less" && by > 0) || ((better as string) === "more" && by < 0));
  return { text: signed(by, absolute) + relative, isWorse };
}
