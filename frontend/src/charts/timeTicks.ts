const [SECOND, MINUTE, HOUR] = [1000, 60_000, 3_600_000];
const STEPS = [
  ...[1, 2, 5, 10, 15, 20, 30].map((step) => step * SECOND),
  ...[1, 2, 5, 10, 15, 20, 30].map((step) => step * MINUTE),
  ...[1, 2, 3, 6, 12, 24, 48, 168, 336].map((step) => step * HOUR),
];

/** Round times within a range, at most `most`: whole minutes, hours or days of the browser's time zone. */
export function timeTicks(from: number, to: number, most: number): number[] {
  const step = STEPS.find((each) => (to - from) / each <= most) ?? (to - from) / most;
  const zone = new Date(from).getTimezoneOffset() * MINUTE;
  const first = Math.ceil((from - zone) / step);
  const count = Math.floor((to - zone) / step) - first + 1;
  return Array.from({ length: Math.min(most, Math.max(0, count)) }, (_, index) => (first + index) * step + zone);
}
