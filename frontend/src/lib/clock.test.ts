import { expect, test } from "vitest";
import { clockOffsetMs } from "./clock";

const DAY_MS = 86_400_000;

test.each([
  ["unknown", null, 0, null],
  ["a small skew as measured", 1500, 0, 1500],
  ["a wrong clock whose times are corrected", 20, -40 * DAY_MS, 40 * DAY_MS + 20],
  ["a wrong clock before its first answer", null, 2 * DAY_MS, -2 * DAY_MS],
])("the offset of %s", (_, clock_skew_ms, clock_correction_ms, offset) => {
  expect(clockOffsetMs({ clock_skew_ms, clock_correction_ms })).toBe(offset);
});
