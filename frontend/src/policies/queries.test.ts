import { expect, test } from "vitest";
import { mergeDecisions } from "./queries";
import type { Decision } from "./types";

const decision = (id: number, outcome: Decision["outcome"] = null) => ({ id, outcome }) as Decision;

test("a reported decision replaces the cached one with the same id, newest first", () => {
  const merged = mergeDecisions([decision(3, "applying"), decision(2)], [decision(4), decision(3, "confirmed")]);
  expect(merged.map(({ id, outcome }) => [id, outcome])).toEqual([
    [4, null],
    [3, "confirmed"],
    [2, null],
  ]);
});

test("at most 200 decisions are cached", () => {
  const many = Array.from({ length: 250 }, (_, id) => decision(id));
  expect(mergeDecisions(many, []).map(({ id }) => id)).toHaveLength(200);
});
