import { expect, test } from "vitest";
import type { Spec } from "../types";
import {
  draftOf,
  draftOfChange,
  draftOfSettings,
  firstError,
  levelsFromValues,
  maxFactors,
  newDraft,
  newFactor,
  newLevel,
  readSpec,
  withKind,
  withWorkload,
} from "./specDraft";

const named = { ...newDraft("aa"), name: "noise" };

test("an A/A experiment needs a name and a node, and nothing else", () => {
  expect(readSpec(newDraft("aa"), 3).wrong).toEqual({ name: "Required." });
  expect(readSpec(named, undefined).wrong).toEqual({ node_id: "Choose a node first." });
  expect(readSpec(named, 3).spec).toMatchObject({
    kind: "aa",
    node_id: 3,
    factors: [],
    workload: { type: "tcp-stream", connections: 4, limit_mbit_per_s: 400_000, server_cpus: "", client_cpus: "" },
    primary: "throughput_bit_per_s",
    seed: null,
    blocks: 6,
    guardrails: [],
  });
});

test.each([
  ["measure_s", "0.5", "A number from 1 to 300."],
  ["blocks", "6.5", "A whole number from 3 to 50."],
  ["blocks", "", "A whole number from 3 to 50."],
] as const)("%s of “%s” is refused with its bounds", (name, text, sentence) => {
  const draft = { ...named, schedule: { ...named.schedule, [name]: text } };
  expect(readSpec(draft, 3).wrong).toEqual({ [name]: sentence });
});

test("levels are settings, a policy, irqbalance or fields of the workload", () => {
  const draft = {
    ...withKind(named, "ab"),
    factors: [
      newFactor({
        name: "server",
        levels: [
          newLevel({ name: "on CPU 1", workload: { server_cpus: "1" } }),
          newLevel({
            name: "steered",
            settings: [{ key: "irq/41/affinity", value: "3,2" }],
            policy: { id: 4, version: 2, mode: "enforce" },
            irqbalance: true,
            irqbalanceCpus: "3,1",
            workload: { connections: "8" },
          }),
        ],
      }),
    ],
  };
  expect(readSpec(draft, 3).spec?.factors[0]?.levels).toEqual([
    {
      name: "on CPU 1",
      settings: [],
      policy: null,
      irqbalance: false,
      irqbalance_cpus: "",
      workload: { server_cpus: "1" },
      value: null,
      role: "",
    },
    {
      name: "steered",
      settings: [{ key: "irq/41/affinity", value: "2-3" }],
      policy: { policy_id: 4, version: 2, mode: "enforce" },
      irqbalance: true,
      irqbalance_cpus: "1,3",
      workload: { connections: 8 },
      value: null,
      role: "",
    },
  ]);
});

test("missing fields of a level are reported by path", () => {
  const draft = {
    ...withKind(named, "ab"),
    factors: [
      newFactor({
        name: "x",
        levels: [newLevel({ name: "a" }), newLevel({ settings: [{ key: "irq/41/affinity", value: "5-2" }] })],
      }),
    ],
  };
  expect(readSpec(draft, 3).wrong).toEqual({
    "factors.0.levels.1.name": "Required.",
    "factors.0.levels.1.settings.0.value": "The range 5-2 runs backwards; write 2-5.",
  });
});

test("a list of values becomes a level each, with its place on the axis", () => {
  const levels = levelsFromValues("netdev/eth0/coalesce/rx-usecs", "0 18  54");
  expect(levels.map(({ name, value }) => [name, value])).toEqual([
    ["rx-usecs 0", "0"],
    ["rx-usecs 18", "18"],
    ["rx-usecs 54", "54"],
  ]);
});

test("a tune begins with the node as it is, at its present value, and has more factors than a sweep", () => {
  const made = levelsFromValues("netdev/eth0/coalesce/rx-usecs", "0 3 18", "3");
  expect(made.map(({ name, value, settings }) => [name, value, settings.length])).toEqual([
    ["current settings", "3", 0],
    ["rx-usecs 0", "0", 1],
    ["rx-usecs 18", "18", 1],
  ]);
  expect(levelsFromValues("netdev/{netdev}/ring/rx", "256", null)[0]?.value).toBe("");
  const tune = { ...withKind(named, "tune"), factors: [newFactor(), newFactor(), newFactor()] };
  expect([maxFactors("tune"), withKind(tune, "sweep").factors.length, withKind(tune, "ab").factors.length]).toEqual([
    6, 2, 1,
  ]);
});

test("another workload keeps the primary metric only if it has it", () => {
  const stream = { ...named, primary: "throughput_bit_per_s" };
  expect(withWorkload(stream, "iperf3").primary).toBe("throughput_bit_per_s");
  expect(withWorkload(stream, "classes").primary).toBe("c5_by_c1");
});

test("a specification reads back as itself, but for its seed", () => {
  const spec: Spec = {
    name: "rx-usecs",
    kind: "sweep",
    node_id: 3,
    workload: {
      type: "udp-flood",
      flows: 9,
      payload_bytes: 64,
      packets_per_s: 20_000,
      server_cpus: "2",
      client_cpus: "",
    },
    primary: "packets_per_s",
    peer_node_id: 5,
    factors: [
      {
        name: "rx-usecs",
        unit: "µs",
        levels: [0, 50].map((value) => ({
          name: `rx-usecs ${value}`,
          settings: [{ key: "netdev/{netdev}/coalesce/rx-usecs", value: String(value) }],
          policy: null,
          irqbalance: false,
          irqbalance_cpus: "",
          workload: {},
          value,
          role: `delay/${value}`,
        })),
      },
    ],
    warmup_s: 1.5,
    measure_s: 5,
    settle_s: 0,
    blocks: 4,
    aa_blocks: 3,
    seed: 77,
    guardrails: [{ metric: "dropped_per_s", max: 100 }],
    application_metrics: ["checkout_p99"],
    tune: { latency: "rtt_p99_us", limit: 2000, max_runs: 60, max_minutes: 30 },
    template: "rx-usecs",
  };
  expect(readSpec(draftOf(spec), 3).spec).toEqual({ ...spec, seed: null });
});

test.each([
  ["name", "Name: x"],
  ["measure_s", "Measurement: x"],
  ["factors.0.name", "Factor: x"],
  ["factors.0.levels.1.settings.0.value", "Level 2, settings: x"],
  ["workload.connections", "Workload: x"],
])("an error at %s has the label of its field", (path, words) => {
  expect(firstError({ [path]: "x", other: "y" })).toBe(words);
});

test("a change is compared with the values before it, under the node's existing traffic", () => {
  const draft = draftOfChange([{ key: "irq/31/affinity", was: "47", becomes: "12" }]);
  expect([draft.name, draft.type, draft.primary]).toEqual(["IRQ 31 = 12", "observe", "rtt_p99_us"]);
  expect(draft.factors[0]?.levels.map(({ settings }) => settings[0]?.value)).toEqual(["47", "12"]);
});

test("settings from a link are compared with the node as it is", () => {
  const draft = draftOfSettings("irq/31/affinity=12 task/812/affinity=0-3 nonsense");
  expect([draft.name, draft.type]).toEqual(["IRQ 31 = 12, task 812 = 0-3", "observe"]);
  expect(draft.factors[0]?.levels.map(({ name, settings }) => [name, settings])).toEqual([
    ["current settings", []],
    [
      "IRQ 31 = 12, task 812 = 0-3",
      [
        { key: "irq/31/affinity", value: "12" },
        { key: "task/812/affinity", value: "0-3" },
      ],
    ],
  ]);
});
