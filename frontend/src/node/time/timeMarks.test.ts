import { expect, test } from "vitest";
import { change } from "../testData";
import { changeMarks } from "./timeMarks";

const APPLIED = Date.parse("2026-11-21T08:00:01Z");
const ended_at = "2026-11-21T08:02:01Z";

test.each([
  ["applying", ["▲ IRQ 41 → 2"]],
  ["unconfirmed", ["▲ IRQ 41 → 2"]],
  ["confirmed", ["✓ IRQ 41 → 2"]],
  ["rolled_back", ["↶ IRQ 41 → 2", "IRQ 41 ↶ 0-3"]],
  ["failed", ["✕ IRQ 41 → 2"]],
] as const)("a change in state %s has the marks %o", (state, labels) => {
  expect(changeMarks([change({ state, ended_at })], 0).map(({ label }) => label)).toEqual(labels);
});

test("marks are at the times of applying and rolling back, in the node's clock", () => {
  const marks = changeMarks([change({ state: "rolled_back", ended_at })], 500);
  expect(marks.map(({ timeMs }) => timeMs)).toEqual([APPLIED + 500, Date.parse(ended_at) + 500]);
});

test("a change that was never applied has no mark", () => {
  expect(changeMarks([change({ state: "failed", applied_at: null })], 0)).toEqual([]);
});

test("a change of several settings names the first, one of an experiment has no mark", () => {
  const actions = [38, 39, 40].map((irq) => ({ key: `irq/${irq}/affinity`, was: "0-3", becomes: "2", reason: "" }));
  const several = change({ plan: { actions, allow_isolated: false } });
  expect(changeMarks([several], 0).map(({ label }) => label)).toEqual(["✓ IRQ 38 → 2 +2"]);
  expect(changeMarks([change({ experiment_id: 7 })], 0)).toEqual([]);
});
