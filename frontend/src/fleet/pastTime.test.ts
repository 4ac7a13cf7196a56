import { expect, test } from "vitest";
import { HOUR_MS, latestMoment, MINUTE_MS, momentOf, momentsOf } from "./pastTime";
import { queryOf } from "./useFleet";

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

test("the page's query asks for a past moment and for one before it", () => {
  const moment = latestMoment("hour", NOON + 4 * MINUTE_MS);
  expect(moment.start).toBe(NOON - HOUR_MS);
  expect(queryOf({ compare: "1d" }, moment)).toMatchObject({ resolution: "hour", compared_h: 24, hot_spots: 0 });
  expect(queryOf({ compare: "1w" }, moment)).toMatchObject({ compared_h: 168 });
});

test("a page of the table is asked for, or for the map the hottest nodes and the hot spots", () => {
  expect(queryOf({ view: "table", page: 3, sort: "-rx", group: "kernel", within: "6.12" }, null)).toEqual({
    sort: "-rx",
    offset: 100,
    limit: 50,
    group: "kernel",
    within: "6.12",
  });
  expect(queryOf({ color: "drops", within: "of no group" }, null)).toEqual({
    sort: "-dropped",
    limit: 500,
    hot_spots: 15,
  });
});
