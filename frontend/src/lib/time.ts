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

const DAY = new Intl.DateTimeFormat("en-GB", { weekday: "short", day: "numeric", month: "long" });

/** `Today, Thu 2 April`: the day of a time by the browser's clock. */
export function dayName(ms: number, nowMs: number): string {
  const days = Math.round((new Date(nowMs).setHours(0, 0, 0, 0) - new Date(ms).setHours(0, 0, 0, 0)) / 86_400_000);
  const name = DAY.format(ms);
  return days === 0 ? `Today, ${name}` : days === 1 ? `Yesterday, ${name}` : name;
}

/** The browser's time zone at a time: `UTC`, `GMT+9`. */
export function zoneName(ms: number): string {
  const parts = new Intl.DateTimeFormat("en", { timeZoneName: "short" }).formatToParts(ms);
  return parts.find(({ type }) => type === "timeZoneName")?.value ?? "";
}

/** Date, time and zone: `2026-11-21 08:12:40 UTC`. */
export function zonedTime(ms: number): string {
  return `${dateTime(ms)} ${zoneName(ms)}`;
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

const TYPED = /^(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(:\d\d)?)$/;

/** The time that a person typed as `2026-11-21 08:12:40` or without seconds; NaN for anything else. */
export function parseTime(text: string): number {
  const [, date, time] = TYPED.exec(text.trim()) ?? [];
  return date === undefined ? Number.NaN : Date.parse(`${date}T${time}`);
}
