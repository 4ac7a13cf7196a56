import { expect, test } from "vitest";
import { ago, axisTime, clock, dateTime, parseTime } from "./time";

const MOMENT = new Date(2026, 10, 21, 8, 2, 4).getTime();

test.each([
  [clock, "08:02:04"],
  [dateTime, "2026-11-21 08:02:04"],
])("%o formats local time with two digits each", (format, expected) => expect(format(MOMENT)).toBe(expected));

test("a time is typed as it is shown, and anything else is refused", () => {
  expect(parseTime(dateTime(MOMENT))).toBe(MOMENT);
  expect(parseTime("2026-11-21 08:02")).toBe(MOMENT - 4000);
  for (const text of ["", "11/21/2026 08:02", "2026-11-21", "2026-13-21 08:02", "8:02"])
    expect(parseTime(text)).toBeNaN();
});

test.each([
  [0, "now"],
  [1400, "now"],
  [-5000, "now"],
  [12_000, "12\u00a0s ago"],
  [3_700_000, "1\u00a0h 1\u00a0min ago"],
])("%d ms before now is “%s”", (ageMs, expected) => expect(ago(MOMENT - ageMs, MOMENT)).toBe(expected));

test.each([
  [60, "08:02:04"],
  [600, "08:02:04"],
  [601, "08:02"],
  [86_400, "08:02"],
  [86_401, "11-21 08:02"],
])("a label on an axis of %d s is %s", (rangeS, expected) => expect(axisTime(MOMENT, rangeS * 1000)).toBe(expected));
