import { expect, test } from "vitest";
import { stagesOf } from "./rolloutStages";

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
