import { expect, test } from "vitest";
import type { Experiment, Level } from "../../types";
import { ordered, stateText } from "./candidateStates";
import { bestOf, type Candidate, confirmationOf, policyOf, whyNotConfirmed } from "./tuneActions";

const level = (name: string, more: Partial<Level> = {}): Level => ({
  name,
  settings: [],
  policy: null,
  irqbalance: false,
  irqbalance_cpus: "",
  workload: {},
  value: null,
  role: "",
  ...more,
});
const setting = (key: string, value: string) => level(`${key} ${value}`, { settings: [{ key, value }] });
const candidate = (arm: number[], state: Candidate["state"], more: Partial<Candidate> = {}): Candidate => ({
  arm,
  name: arm.join(", "),
  runs: 1,
  state,
  why: "",
  front: false,
  cost: null,
  latency: null,
  effect: null,
  ...more,
});
const tuned = (best: number[] | null, more: Level[] = []) =>
  ({
    id: 4,
    name: "Tune",
    node_name: "web-1",
    machine: { netdevs: [{ name: "eth0", driver: "igb" }] },
    spec: {
      name: "Tune",
      kind: "tune",
      workload: { type: "tcp-request" },
      tune: { latency: "rtt_p99_us", limit: 2000, max_runs: 60, max_minutes: 60 },
      factors: [
        { name: "delay", unit: "µs", levels: [level("as it is"), setting("netdev/eth0/coalesce/rx-usecs", "50")] },
        { name: "other", unit: "", levels: [level("as it is"), ...more] },
      ],
    },
    tune: { candidates: [candidate([0, 0], "baseline"), ...(best === null ? [] : [candidate(best, "best")])] },
  }) as unknown as Experiment;

test("the best combination is compared with the baseline under the same load", () => {
  const experiment = tuned([1, 1], [level("on CPU 3", { workload: { server_cpus: "3" } })]);
  const spec = confirmationOf(experiment);
  expect(spec).toMatchObject({ kind: "ab", name: "Tune, confirmation", blocks: 6, template: "" });
  const [baseline, best] = spec.factors[0]?.levels ?? [];
  expect(baseline).toMatchObject({ settings: [], workload: {} });
  expect(best).toMatchObject({
    settings: [{ key: "netdev/eth0/coalesce/rx-usecs", value: "50" }],
    workload: { server_cpus: "3" },
  });
  expect(whyNotConfirmed(experiment)).toBeNull();
});

test("without another best combination there is nothing to confirm", () => {
  expect(bestOf(tuned(null))).toBeNull();
  expect(whyNotConfirmed(tuned(null))).toMatch(/no best combination yet/);
  expect(whyNotConfirmed(tuned([0, 0]))).toMatch(/is the baseline/);
});

test("a policy applies to devices of the same driver and keeps the limit as its guardrail", () => {
  const { body, leftOut } = policyOf(tuned([1, 1], [setting("irq/41/affinity", "3")]));
  expect(leftOut).toEqual(["irq/41/affinity = 3 (an interrupt or process of this node only)"]);
  expect(body).toMatchObject({
    name: "Tune (experiment 4)",
    mode: "recommend",
    spec: { type: "fixed-settings", settings: { "netdev/{netdev}/coalesce/rx-usecs": "50" } },
    selector: { drivers: ["igb"], hostnames: [] },
    scope: { drivers: ["igb"] },
    guardrails: [{ metric: "rtt_p99_us", max: 2000 }],
  });
});

test("settings of several devices keep their names, on this node", () => {
  const { body } = policyOf(tuned([1, 1], [setting("netdev/eth1/ring/rx", "512")]));
  expect(body).toMatchObject({
    spec: { settings: { "netdev/eth0/coalesce/rx-usecs": "50", "netdev/eth1/ring/rx": "512" } },
    selector: { drivers: [], hostnames: ["web-1"] },
  });
});

test("what cannot be part of a policy is listed", () => {
  const policy = { policy_id: 4, version: 2, mode: "enforce" as const };
  const other = level("all", { policy, irqbalance: true, workload: { server_cpus: "3" } });
  expect(policyOf(tuned([1, 1], [other])).leftOut).toEqual([
    "policy 4 v2 (enable that policy instead)",
    "irqbalance (not a setting)",
    "server_cpus = 3 (of the generated load)",
  ]);
  expect(policyOf(tuned([1, 0])).leftOut).toEqual([]);
});

test("what means something else on other nodes makes no policy", () => {
  const irq = tuned([0, 1], [setting("irq/41/affinity", "3")]);
  expect(policyOf(irq).why).toBe("The best combination has no setting that other nodes have too.");
});

test("an eliminated candidate shows why", () => {
  expect(stateText(candidate([1], "worse", { why: "12 % more CPU per gigabit than the best." }))).toBe(
    "eliminated: 12 % more CPU per gigabit than the best.",
  );
  expect(stateText(candidate([1], "open"))).toBe("not eliminated");
});

test.each([
  [true, "more less unmeasured other eliminated"],
  [false, "less more unmeasured other eliminated"],
])("candidates without an estimate follow those with one, if more is better: %s", (isMoreBetter, names) => {
  const named = (name: string, value: number | null, state: Candidate["state"] = "open") =>
    candidate([0], state, { name, cost: value === null ? null : { value, low: value, high: value } });
  const candidates = [
    named("unmeasured", null),
    named("eliminated", 3, "worse"),
    ...[named("less", 1), named("other", null), named("more", 2)],
  ];
  const shown = ordered(candidates, isMoreBetter).map(({ name }) => name);
  expect(shown.join(" ")).toBe(names);
});
