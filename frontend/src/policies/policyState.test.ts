import { expect, test } from "vitest";
import { bodyOf, newDraft } from "./editor/policyDraft";
import { disabling, enabling, several, standing } from "./policyState";
import type { Mode, Policy, PolicyBody, Rollout } from "./types";

const draft = newDraft("irq-spread");
const body = (mode: Mode) => bodyOf({ ...draft, mode, texts: { ...draft.texts, name: "spread" } }).body as PolicyBody;
const policy = (mode: Mode, over: Partial<Policy> = {}): Policy => ({
  id: 1,
  name: "spread",
  version: 3,
  versions: 3,
  body: body(mode),
  enabled: false,
  nodes: 12,
  created_at: "2026-11-21T08:00:00Z",
  created_by: "ada",
  rollout: null,
  ...over,
});
const rollout = { state: "batches", to_version: 4, stages: [[1], [2, 3]], done_nodes: [1] } as unknown as Rollout;

test.each([
  [policy("observe"), "off"],
  [policy("observe", { enabled: true }), "in force"],
  [policy("enforce", { enabled: true, rollout }), "rolling out v4: 1 of 3 nodes passed"],
])("a policy's standing is told in a few words", (given, words) => expect(standing(given)).toBe(words));

test.each([
  ["observe", "nothing is changed"],
  ["recommend", "a person applies them"],
  ["enforce", "up to 2 settings every 5 s by themselves"],
] as const)("enabling in mode %s says what will happen and where", (mode, part) => {
  expect(enabling(policy(mode))).toContain("version 3 in force on 12 nodes");
  expect(enabling(policy(mode))).toContain(part);
});

test("disabling says that an enforcing policy's settings go back, and that a rollout ends", () => {
  expect(disabling(policy("enforce", { rollout }))).toBe(
    "Disabling ends it on 12 nodes; every setting that it moved there goes back to what it was before. Its rollout ends.",
  );
  expect(disabling(policy("recommend"))).toBe("Disabling ends it on 12 nodes; nothing is changed there.");
});

test("a few of many names are told", () => {
  expect(several(["a", "b", "c"], 2)).toBe("a, b and 1 more");
  expect(several(["a", "b"], 2)).toBe("a, b");
});
