/** Which minute or hour of the past the fleet page shows, and what it is compared with. */

import { MAX_SPAN_OF_FLEET_MINUTES_MS, STORED_AFTER_MS } from "../api/constants";
import type { COMPARISONS, FleetSearch } from "./search";

export const MINUTE_MS = 60_000;
export const HOUR_MS = 3_600_000;
const WIDTH_MS = { minute: MINUTE_MS, hour: HOUR_MS };

export type PastResolution = keyof typeof WIDTH_MS;
export type Range = { from: number; to: number };
/** A minute or hour: when it begins. */
export type Moment = { start: number; resolution: PastResolution };

export const COMPARE_MS: Record<(typeof COMPARISONS)[number], number> = {
  "1h": HOUR_MS,
  "1d": 24 * HOUR_MS,
  "1w": 7 * 24 * HOUR_MS,
};

export const widthOf = ({ resolution }: Pick<Moment, "resolution">): number => WIDTH_MS[resolution];

/** Minutes of a short range, hours of a longer one, as the backend reads them. */
export const resolutionOf = ({ from, to }: Range): PastResolution =>
  to - from <= MAX_SPAN_OF_FLEET_MINUTES_MS ? "minute" : "hour";

const floored = (ms: number, width: number) => Math.floor(ms / width) * width;

/** The latest minute or hour that is stored completely. */
export function latestMoment(resolution: PastResolution, nowMs: number): Moment {
  const width = WIDTH_MS[resolution];
  return { start: floored(nowMs - STORED_AFTER_MS[resolution], width) - width, resolution };
}

/** The shown range; null without one. */
export const rangeOf = ({ from, to }: FleetSearch): Range | null =>
  from === undefined || to === undefined ? null : { from, to };

/** The first and the last minute or hour of a range, without those that are not stored yet. */
export function momentsOf(range: Range, nowMs: number): { first: number; last: number; resolution: PastResolution } {
  const resolution = resolutionOf(range);
  const width = WIDTH_MS[resolution];
  const latest = latestMoment(resolution, nowMs).start;
  const first = floored(range.from, width);
  return { first, last: Math.max(first, Math.min(latest, floored(range.to - 1, width))), resolution };
}

/** The minute or hour that the page shows; null while it follows the present. */
export function momentOf(search: FleetSearch, nowMs: number): Moment | null {
  const range = rangeOf(search);
  if (range !== null) {
    const { first, last, resolution } = momentsOf(range, nowMs);
    const at = floored(search.at ?? last, WIDTH_MS[resolution]);
    return { start: Math.max(first, Math.min(last, at)), resolution };
  }
  if (search.at !== undefined) return { start: floored(search.at, MINUTE_MS), resolution: "minute" };
  // Seconds of the present would be compared with means of a minute.
  return search.compare === undefined ? null : latestMoment("minute", nowMs);
}
