import { expect, test } from "vitest";
import { ago, axisTime, clock, dateTime, localInput } from "./time";

const MOMENT = new Date(2026, 10, 21, 8, 2, 4).getTime();

test.each([
  [clock, "08:02:04"],
  [dateTime, "2026-11-21 08:02:04"],
  [localInput, "2026-11-21T08:02:04"],
])("%o formats local time with two digits each", (format, expected) => expect(format(MOMENT)).toBe(expected));

test("a value of a datetime-local input parses to the same time", () => {
  expect(Date.parse(localInput(MOMENT))).toBe(MOMENT);
});

test.each([
  [0, "now"],
  [1400, "now"],
  [-5000, "now"],
  [12_000, "12 s ago"],
  [3_700_000, "1 h 1 min ago"],
])("%d ms before now is “%s”", (ageMs, expected) => expect(ago(MOMENT - ageMs, MOMENT)).toBe(expected));

test.each([
  [60, "08:02:04"],
  [600, "08:02:04"],
  [601, "08:02"],
  [86_400, "08:02"],
  [86_401, "11-21 08:02"],
])("a label on an axis of %d s is %s", (rangeS, expected) => expect(axisTime(MOMENT, rangeS * 1000)).toBe(expected));
