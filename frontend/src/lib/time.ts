/** Time formatting. Times are Unix milliseconds, shown in the browser's time zone. */

import { duration } from "./format";

const two = (value: number) => String(value).padStart(2, "0");

/** Time of day: `08:12:40`. */
export function clock(ms: number): string {
  const date = new Date(ms);
  return `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** Date and time: `2026-11-21 08:12:40`. */
export function dateTime(ms: number): string {
  const date = new Date(ms);
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} ${clock(ms)}`;
}

/** Age of a time: `now`, `12 s ago`. */
export function ago(ms: number, nowMs: number): string {
  const seconds = (nowMs - ms) / 1000;
  return seconds < 1.5 ? "now" : `${duration(seconds)} ago`;
}

/** A time-axis label: with seconds for ranges under 10 min, with the date above 24 h. */
export function axisTime(ms: number, rangeMs: number): string {
  const date = new Date(ms);
  const minutes = `${two(date.getHours())}:${two(date.getMinutes())}`;
  if (rangeMs <= 600_000) return `${minutes}:${two(date.getSeconds())}`;
  if (rangeMs <= 86_400_000) return minutes;
  return `${two(date.getMonth() + 1)}-${two(date.getDate())} ${minutes}`;
}

/** Value for `<input type="datetime-local" step="1">`: `2026-11-21T08:12:40`. */
export function localInput(ms: number): string {
  return dateTime(ms).replace(" ", "T");
}
