import { describe, expect, test } from "vitest";
import { kindNames } from "../kinds";
import type { PolicyBody } from "../types";
import { type Draft, draftOf, fieldLabel, newDraft, readBody, withKind } from "./policyDraft";

const named = (draft: Draft, values: Record<string, string> = {}): Draft => ({
  ...draft,
  values: { ...draft.values, name: "calm", ...values },
});
const BODY: PolicyBody = {
  name: "calm",
  rank: 7,
  mode: "enforce",
  spec: {
    type: "network-process",
    idle_s: 2.5,
    min_bytes_per_s: 5e6,
    max_load: 0.55,
    max_distance: "l2",
    smt: "first",
    move_irq: true,
    allow_isolated: false,
  },
  selector: { labels: { rack: "r0*" }, hostnames: ["db-*", "web-1"], netdevs: [], drivers: ["mlx5*"] },
  scope: { netdevs: ["eth*"], drivers: [], tasks: ["nginx"], cgroups: [] },
  damping: { moves_per_step: 3, dwell_s: 60, min_revert_s: 300 },
  on_controller: "yield",
  on_drift: "reassert",
  guardrails: [{ metric: "rtt_p99_us", max: 500 }],
  proof: {
    holdout_percent: 10,
    block_s: 1200,
    metric: "rtt_p99_us",
    guardrails: ["cpu_s_per_gbit"],
    application_metrics: ["checkout_p99"],
    min_bit_per_s: 5e6,
    domain_label: "rack",
    domain_percent: 50,
    roll_back: true,
  },
};

test("a body that is shown and read again is the same body", () => {
  expect(readBody(draftOf(BODY))).toEqual({ body: BODY, wrong: null });
});

test.each(kindNames())("a new %s policy needs only a name, and begins by recommending", (kind) => {
  expect(readBody(newDraft(kind)).wrong).toEqual({ name: "Required." });
  expect(readBody(named(newDraft(kind))).body).toMatchObject({ name: "calm", mode: "recommend", spec: { type: kind } });
});

test("a share is shown in per cent", () => {
  expect(draftOf(BODY).values["spec.max_load"]).toBe("55");
});

test("another kind keeps all but the specification", () => {
  const other = readBody(withKind(draftOf(BODY), "irq-spread")).body;
  expect(other).toEqual({ ...BODY, spec: expect.objectContaining({ type: "irq-spread", act_percent: 65 }) });
});

describe("an invalid value has an error at its field", () => {
  test.each([
    ["spec.act_percent", "120", "A number from 1 to 100."],
    ["spec.act_percent", "", "A number from 1 to 100."],
    ["spec.gap_points", "much", "A number from 1 to 100."],
    ["spec.exclude", "3-1", "The range 3-1 runs backwards; write 1-3."],
    ["damping.moves_per_step", "1.5", "A whole number from 1 to 64."],
    ["rank", "1000", "A whole number from 0 to 999."],
    ["selector.labels", "rack", "“rack” has no value; write it as name=value."],
    ["guardrails.busiest_cpu_percent", "-1", "A number from 0 to 1,000,000,000."],
  ])("%s as “%s”", (path, typed, sentence) => {
    expect(readBody(named(newDraft("irq-spread"), { [path]: typed })).wrong).toEqual({ [path]: sentence });
  });
});

test("an empty guardrail is none, and patterns may be apart by commas or spaces", () => {
  const values = { "guardrails.rtt_p99_us": " ", "scope.netdevs": "eth0, eth1  bond*" };
  const { body } = readBody(named(newDraft("irq-spread"), values));
  expect([body?.guardrails, body?.scope.netdevs]).toEqual([[], ["eth0", "eth1", "bond*"]]);
});

test.each([
  ["spec.act_percent", "Load threshold, %"],
  ["spec.max_load", "Maximum load of the interrupt's CPU, share"],
  ["selector.labels.rack", "Node selector: Labels rack"],
  ["scope.netdevs", "Scope: Network devices"],
  ["damping.dwell_s", "Flap damping: Dwell time, s"],
  ["mode", "Mode"],
  ["spec.new_field", "spec.new_field"],
])("the path %s of a difference is called %s", (path, name) => {
  expect(fieldLabel(path, kindNames())).toBe(name);
});
