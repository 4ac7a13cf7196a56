import { expect, test } from "vitest";
import type { LogEntry } from "./queries";
import { type StopEvent, scopeText, stopState, stopWords, timeOf, withStops } from "./stopRows";

const entry = (minute: number) => ({ change: { created_at: `2026-11-22T12:0${minute}:00Z` } }) as LogEntry;
const stop = (minute: number, over: Partial<StopEvent> = {}): StopEvent => ({
  ...{ stop: 1, action: "stop", at: `2026-11-22T12:0${minute}:00Z`, by: "kim", labels: {}, reason: "" },
  ...{ nodes: 12, settings: 4310, in_force: true, ...over },
});
const minutes = (rows: ReturnType<typeof withStops>) => rows.map((row) => new Date(timeOf(row)).getUTCMinutes());

test("stops older than the oldest change shown wait until no older change follows", () => {
  const entries = [entry(8), entry(5)];
  expect(minutes(withStops(entries, [stop(9), stop(6), stop(2)], false))).toEqual([9, 8, 6, 5]);
  expect(minutes(withStops(entries, [stop(2)], true))).toEqual([8, 5, 2]);
  expect(minutes(withStops([], [stop(2)], true))).toEqual([2]);
});

test.each([
  [stop(1), "enforcement stopped", "12 nodes, 4,310 settings kept", "in force"],
  [stop(1, { nodes: 1, settings: 1 }), "enforcement stopped", "1 node, 1 setting kept", "in force"],
  [
    stop(1, { action: "restore", in_force: false }),
    "everything restored",
    "12 nodes, 4,310 settings as found",
    "ended",
  ],
  [stop(1, { action: "lift", in_force: false }), "stop lifted", "12 nodes", "lifted"],
  [stop(1, { nodes: null, settings: null }), "enforcement stopped", "", "in force"],
])("a stop's row says what it did, what it reached and whether it is in force", (event, what, values, state) => {
  expect(stopWords(event)).toEqual({ what, values });
  expect(stopState(event).text).toBe(state);
});

test("a stop's scope is its labels", () => {
  expect(scopeText(stop(1))).toBe("all nodes");
  expect(scopeText(stop(1, { labels: { rack: "r0*", role: "db" } }))).toBe("rack=r0* role=db");
});
