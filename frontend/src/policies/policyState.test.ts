import { expect, test } from "vitest";
import { newDraft, readBody } from "./editor/policyDraft";
import { describeDisabling, describeEnabling, holdoutsText, movesMemory, policyState, policyTone } from "./policyState";
import type { Mode, Policy, PolicyBody, Rollout } from "./types";

const draft = newDraft("irq-spread");
const body = (mode: Mode) =>
  readBody({ ...draft, values: { ...draft.values, mode, name: "spread" } }).body as PolicyBody;
const policy = (mode: Mode, over: Partial<Policy> = {}): Policy => ({
  id: 1,
  name: "spread",
  version: 3,
  versions: 3,
  body: body(mode),
  enabled: false,
  nodes: 12,
  in_force: [],
  created_at: "2026-11-21T08:00:00Z",
  created_by: "ada",
  rollout: null,
  rolled_back: null,
  pace: { canary: 1, batch: 10, wait_s: 60, leave_pages: false },
  ...over,
});
const rollout = { state: "batches", to_version: 4, stages: [[1], [2, 3]], done_nodes: [1] } as unknown as Rollout;

test.each([
  [policy("observe"), "disabled"],
  [policy("observe", { enabled: true }), "observing"],
  [policy("recommend", { enabled: true }), "recommending"],
  [policy("enforce", { enabled: true }), "in force"],
  [policy("enforce", { enabled: true, rollout }), "v4 on no node yet, rolling out"],
  [
    policy("enforce", {
      enabled: true,
      rollout,
      in_force: [
        { version: 3, nodes: 771 },
        { version: 4, nodes: 41 },
      ],
    }),
    "v3 on 771 nodes, v4 on 41, rolling out",
  ],
])("a policy's state is a short text", (given, words) => expect(policyState(given)).toBe(words));

test.each([
  [policy("enforce", { enabled: true }), "ok"],
  [policy("observe", { enabled: true }), ""],
  [policy("enforce"), ""],
  [policy("enforce", { enabled: true, rollout }), "warn"],
])("only a policy that writes is green", (given, tone) => expect(policyTone(given)).toBe(tone));

test.each([
  ["observe", "nothing is changed"],
  ["recommend", "a person applies them"],
  ["enforce", "each applies up to 2 changes every 5 s automatically"],
] as const)("enabling in mode %s says what will happen and where", (mode, part) => {
  expect(describeEnabling(policy(mode))).toContain("version 3 in force on 12 nodes");
  expect(describeEnabling(policy(mode))).toContain(part);
});

test("disabling says that an enforcing policy's settings are restored, and that a rollout stops", () => {
  expect(describeDisabling(policy("enforce", { rollout }))).toBe(
    "Disabling stops it on 12 nodes; every setting that it changed there is restored, later where a change window is closed or enforcement is stopped. Its rollout stops.",
  );
  expect(describeDisabling(policy("recommend"))).toBe("Disabling stops it on 12 nodes; no setting is changed there.");
});

test.each([
  ["enforced", "numa", policy("enforce", { enabled: true }), true],
  ["disabled", "numa", policy("enforce"), false],
  ["observed", "numa", policy("observe", { enabled: true }), false],
  ["rolled out", "numa", policy("observe", { enabled: true, rollout }), true],
  ["of another kind", "irq-spread", policy("enforce", { enabled: true }), false],
] as const)("a policy that is %s may be told to leave memory: %s", (_, type, given, expected) => {
  const spec = { ...given.body.spec, type } as PolicyBody["spec"];
  expect(movesMemory({ ...given, body: { ...given.body, spec } })).toBe(expected);
});

const held = (holdout_percent: number, enabled = true) => {
  const enforced = body("enforce");
  return policy("enforce", { enabled, body: { ...enforced, proof: { ...enforced.proof, holdout_percent } } });
};

test.each([
  [[], "Holdouts: none"],
  [[held(0)], "Holdouts: none"],
  [[held(5), held(5), held(20, false)], "Holdouts: 5 % of node time"],
  [[held(0), held(5)], "Holdouts: 0 to 5 % of node time"],
])("the share of held-out time is that of the enforced policies: %#", (policies, words) => {
  expect(holdoutsText(policies)).toBe(words);
});
