import { expect, test } from "vitest";
import { change } from "../node/testData";
import type { ObservedFigure } from "./observation";
import { afterWords, entryAfterWords, entryStatusWords, statusWords } from "./state";

const dropped = (more: Partial<ObservedFigure>): ObservedFigure => ({
  metric: "dropped_per_s",
  subject: "",
  before: 143,
  after: 0,
  usual_least: null,
  usual_most: null,
  has_moved: null,
  ...more,
});
const rtt = dropped({ metric: "rtt_p99_us", before: 1000, after: 1040 });

test.each([
  [[dropped({}), rtt], "RTT p99 ▲ 4 %, Dropped ▼ 100 %", "muted"],
  [[dropped({ has_moved: true }), rtt], "Dropped ▼ 100 %", "ok"],
  [[dropped({ has_moved: false }), { ...rtt, has_moved: false }], "≈ usual", "muted"],
])("%o after a change reads as %s", (figures, text, tone) => {
  const observation = { before_s: 120, after_s: 120, is_complete: true, other_changes: 0, missing: "", figures };
  expect(afterWords(change({ state: "confirmed", observation }))).toEqual({ text, tone });
});

test("nothing is said of a change without figures", () => {
  expect(afterWords(change({ state: "confirmed", observation: null }))).toBeNull();
});

const by = { change: "c2", by: "ann", at: "2026-11-23T08:05:00Z" };

test("an undone change keeps what was seen after it, and says who undid it", () => {
  const observation = { before_s: 120, after_s: 120, is_complete: true, other_changes: 0, missing: "", figures: [rtt] };
  const words = afterWords(change({ status: "undone", undone: by, observation }));
  expect(words?.text).toMatch(/^RTT p99 ▲ 4 % · undone by ann, 2026-11-23/);
});

test.each([
  [{ status: "confirmed", policy_id: 3 }, "confirmed", "ok"],
  [{ status: "undone", state: "confirmed" }, "undone", "muted"],
  [{ status: "rolled_back", ended_by: "timeout" }, "rolled back", "warn"],
  [{ status: "rolled_back", ended_by: "user" }, "rolled back", "muted"],
] as const)("a change that is %o is in a word %s", (of, text, tone) => {
  expect(statusWords(change(of))).toEqual({ text, tone });
});

test.each([
  [{ rolled_back: 3 }, "rolled back", null],
  [{ rolled_back: 2, confirmed: 12 }, "mixed", "12 confirmed, 2 rolled back"],
])("a group of which %o is %s", (statuses, text, after) => {
  const newest = change({ status: "rolled_back", ended_by: "user", experiment_id: 1 });
  const entry = { change: newest, hour: newest.created_at, changes: 14, nodes: 1, statuses };
  expect(entryStatusWords(entry).text).toBe(text);
  expect(entryAfterWords(entry)?.text ?? null).toBe(after);
});
