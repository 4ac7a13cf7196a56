import { expect, test } from "vitest";
import { comparedWith, HOUR_MS, latestMoment, MINUTE_MS, momentOf, momentsOf } from "./pastTime";

const NOON = Date.UTC(2026, 10, 21, 12);
const minute = (minutes: number) => NOON + minutes * MINUTE_MS;

test.each([
  ["the present is live", {}, null],
  ["a comparison of the present takes the latest stored minute", { compare: "1h" }, minute(-3)],
  ["a time without a range is its minute", { at: minute(-90) + 17_000 }, minute(-90)],
  ["a range shows its last minute", { from: minute(-120), to: minute(-60) }, minute(-61)],
  ["a range up to now shows the latest stored minute", { from: minute(-60), to: NOON }, minute(-3)],
  ["a time in a range", { from: minute(-120), to: minute(-60), at: minute(-100) + 1 }, minute(-100)],
  ["a time outside the range is moved into it", { from: minute(-120), to: minute(-60), at: NOON }, minute(-61)],
] as const)("%s", (_, search, start) => {
  expect(momentOf(search, NOON)).toEqual(start === null ? null : { start, resolution: "minute" });
});

test("a range over more than six hours has hours", () => {
  const range = { from: minute(-60 * 24) + 5, to: NOON };
  expect(momentsOf(range, NOON)).toEqual({
    first: NOON - 24 * HOUR_MS,
    last: NOON - 2 * HOUR_MS,
    resolution: "hour",
  });
  expect(momentOf({ ...range, at: minute(-90) }, NOON)?.start).toBe(NOON - 2 * HOUR_MS);
  expect(momentsOf({ from: minute(-360), to: NOON }, NOON).resolution).toBe("minute");
});

test("a moment is compared with the one of the same length an hour, a day or a week before", () => {
  const moment = latestMoment("hour", NOON + 4 * MINUTE_MS);
  expect(moment.start).toBe(NOON - HOUR_MS);
  expect(comparedWith(moment, undefined)).toBe(null);
  expect(comparedWith(moment, "1d")).toEqual({ start: NOON - 25 * HOUR_MS, resolution: "hour" });
  expect(comparedWith(moment, "1w")?.start).toBe(NOON - 169 * HOUR_MS);
});
