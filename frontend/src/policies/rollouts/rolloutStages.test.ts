import { expect, test } from "vitest";
import { stagesOf, waitLeft } from "./rolloutStages";

const stages = [[1], [2, 3], [4]];

test.each([
  ["canary", 0, [], ["in progress", "pending", "pending"]],
  ["batches", 1, [1], ["passed", "in progress", "pending"]],
  ["done", 2, [1, 2, 3, 4], ["passed", "passed without figures", "passed, not compared"]],
  ["stopped", 1, [1], ["passed", "updated", "not reached"]],
  ["rolled_back", 1, [1], ["rolled back", "rolled back", "not reached"]],
] as const)("the stages of a rollout that is %s", (state, stage, done_nodes, words) => {
  const evidence = [
    { stage: 0, basis: "compared" as const },
    { stage: 1, basis: "none" as const },
    { stage: 2, basis: "before_after" as const },
  ];
  const found = stagesOf({ state, stage, stages, done_nodes: [...done_nodes], evidence });
  expect(found.map((one) => one.state)).toEqual(words);
});

test("the wait counts down to nothing, and a clock that is behind does not lengthen it", () => {
  const rollout = { stage_at: "2026-11-21T08:00:00Z", wait_s: 60 };
  const at = Date.parse(rollout.stage_at);
  expect([at - 5_000, at, at + 20_000, at + 90_000].map((now) => waitLeft(rollout, now))).toEqual([60, 60, 40, 0]);
});
