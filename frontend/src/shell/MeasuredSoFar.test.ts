import { expect, test } from "vitest";
import { beforeAndSince } from "./MeasuredSoFar";

const times_ms = [0, 1, 2, 3, 4, 5, 6, 7];

test.each([
  ["medians of both sides", [400, 900, 410, 420, 300, 310, 305, null], [415, 305]],
  ["null with too few values since", [400, 410, 420, 430, 300, 310, null, null], null],
  ["null without values before", [null, null, null, null, 1, 2, 3, 4], null],
])("%s", (_, values, wanted) => {
  expect(beforeAndSince({ times_ms, values: { rtt_p99_us: values } }, "rtt_p99_us", 4)).toEqual(wanted);
});

test("a metric missing in the response is null", () => {
  expect(beforeAndSince({ times_ms, values: {} }, "rtt_p99_us", 4)).toBeNull();
});
