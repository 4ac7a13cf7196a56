import { expect, test } from "vitest";
import type { Decision } from "../../policies/types";
import { decisionMarks } from "../time/timeMarks";
import { holdoutText } from "./decisions";

const decision = (id: number, policy: string, over: Partial<Decision> = {}, moves = 1): Decision => ({
  id,
  node_id: 1,
  at: new Date(id * 1000).toISOString(),
  policy_id: policy.length,
  policy_name: policy,
  version: 2,
  mode: "recommend",
  evaluation: {
    policy_id: "1",
    version: 2,
    mode: "recommend",
    sentence: "",
    actions: Array.from({ length: moves }, (_, irq) => ({
      key: `irq/${irq}/affinity`,
      was: "0",
      becomes: "1",
      reason: "",
    })),
    deferred: [],
    skipped: [],
    drifts: [],
    controllers: [],
  },
  change_id: null,
  outcome: null,
  holdout: null,
  ...over,
});

test("a decision with actions has a mark unless it became a change", () => {
  const change_id = "6b1d7a5e-3b44-4a86-9a55-0c9e7d6f0a11";
  const marks = decisionMarks(
    [decision(1, "spread", {}, 2), decision(2, "near", { mode: "enforce", change_id }), decision(3, "idle", {}, 0)],
    500,
  );
  expect(marks).toEqual([
    { key: "decision 1", timeMs: 1500, kind: "decision", label: "◇ spread v2 recommends 2 settings" },
  ]);
});

test("consecutive decisions on the same settings have one mark", () => {
  const marks = decisionMarks(
    [
      decision(4, "spread", {}, 2),
      decision(3, "spread", {}, 1),
      decision(2, "spread", {}, 1),
      decision(1, "near", {}, 1),
    ],
    0,
  );
  expect(marks.map(({ timeMs }) => timeMs)).toEqual([1000, 2000, 4000]);
});

const holdout = (state: NonNullable<Decision["holdout"]>["state"], over = {}) =>
  holdoutText({ holdout: { state, version: 2, since_ms: 0, excepted: [], why: "", ...over } });

test("a policy that is held out is marked with its state, and settings that are not restored are named", () => {
  expect(holdoutText({ holdout: null })).toBeNull();
  expect(holdout("in_force")).toBeNull();
  expect(holdout("held_out")?.words).toMatch(/^held out since \d\d:\d\d:\d\d$/);
  const rings = { subject: "netdev/eth0/ring/rx", why: "The write interrupts traffic." };
  expect(holdout("held_out", { excepted: [rings] })?.help).toMatch(/Not restored: netdev\/eth0\/ring\/rx\.$/);
  expect(holdout("refused", { why: "It moves memory." })).toEqual({
    words: "never held out",
    help: "It moves memory.",
  });
});
