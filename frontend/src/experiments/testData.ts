import type { Comparison, Experiment, Interval, Level, RecordedRun } from "./types";

/** An interval of 10 % around a value. */
export const about = (value: number): Interval => ({ value, low: value * 0.9, high: value * 1.1 });

export const level = (name: string, value: number | null = null): Level => ({
  name,
  settings: [],
  policy: null,
  irqbalance: false,
  irqbalance_cpus: "",
  workload: {},
  value,
  role: "",
});

export const comparison = (more: Partial<Comparison> = {}): Comparison => ({
  metric: "throughput_bit_per_s",
  arm: [1],
  baseline: about(9e9),
  level: about(9.5e9),
  effect: { value: 0.05, low: 0.03, high: 0.07 },
  p: 0.03,
  minimum_detectable: 0.02,
  blocks: 6,
  verdict: "higher",
  ...more,
});

export const run = (number: number, arm: number[], more: Partial<RecordedRun> = {}): RecordedRun => ({
  planned: { number, stage: arm.length === 0 ? "aa" : "main", block: 0, label: 0, arm },
  attempt: 0,
  started_ms: 0,
  duration_s: 10,
  figures: {},
  cpus: {},
  load_before: 0,
  steal_percent: null,
  discarded: null,
  missing: {},
  violated: false,
  ...more,
});

/** The part of an experiment that charts and tables use: a sweep with levels a, b and c. */
export const sweep = (values: [number | null, number | null, number | null] = [0, 20, 90]) =>
  ({
    arms: ["a", "b", "c"],
    spec: {
      kind: "sweep",
      factors: [{ name: "x", unit: "µs", levels: ["a", "b", "c"].map((name, place) => level(name, values[place])) }],
    },
    analysis: {
      arms: [[0], [1], [2]],
      means: { throughput_bit_per_s: [about(9), null, about(7)] },
      noise: {},
      comparisons: [],
      metrics: ["throughput_bit_per_s"],
      trends: [],
      counted: 0,
      discarded: 0,
    },
    published: [],
    deviations: [],
    metrics: { throughput_bit_per_s: { label: "Throughput", unit: "bit/s", better: "more" } },
    runs: [] as RecordedRun[],
    runs_planned: 4,
    // the parts of an experiment that these tests take
  }) as unknown as Experiment;
