import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { parseFilter } from "./filter";
import { FleetFigures, frameOfNodes } from "./fleetStore";

type Node = Schemas["NodeSummary"];

const FIGURES: NonNullable<Node["figures"]> = {
  time: "2026-11-21T08:00:00Z",
  busiest_cpu: 2,
  softirq_cpu: 2,
  metrics: {
    busiest_cpu_percent: 95,
    softirq_cpu_percent: 94,
    rx_bytes_per_s: 2.5e8,
    tx_bytes_per_s: 0,
    rx_packets_per_s: 0,
    interrupts_per_s: 18_200,
    softnet_dropped_per_s: 0,
    squeezed_per_s: 3,
    rtt_p99_us: null,
  },
};

const node = (id: number, name: string, more: Partial<Node> = {}): Node => ({
  id,
  name,
  simulated: false,
  health: "live",
  mode: "control",
  observe_reason: null,
  agent_version: "0.1.0",
  kernel: "6.12.117",
  labels: {},
  cpus: 8,
  packages: 1,
  numa_nodes: 1,
  drivers: ["igb"],
  last_seen_at: null,
  clock_skew_ms: null,
  clock_correction_ms: 0,
  rejected_samples: 0,
  figures: FIGURES,
  open_changes: 0,
  ...more,
});

const NODES = [
  node(1, "db-1", { labels: { role: "db", rack: "a" } }),
  node(2, "db-2", {
    labels: { role: "db" },
    figures: { ...FIGURES, metrics: { ...FIGURES.metrics, softirq_cpu_percent: 12, softnet_dropped_per_s: 40 } },
  }),
  node(3, "web-1", { labels: { role: "web" }, simulated: true, drivers: ["virtio_net"], mode: "observe" }),
  node(4, "web-2", { health: "away", figures: null, cpus: 64, kernel: "5.15.0", open_changes: 1 }),
];
const figures = new FleetFigures(frameOfNodes(NODES));

test.each([
  ["", "1 2 3 4"],
  ["db", "1 2"],
  ["WEB 2", "4"],
  ["label:role=db", "1 2"],
  ["label:rack", "1"],
  ["label:role=DB softirq > 60", "1"],
  ["softirq>60", "1 3"],
  ["softirq <= 12", "2"],
  ["drops > 0", "2"],
  ["rx >= 2G", "1 2 3"],
  ["rx > 2.1g", ""],
  ["interrupts > 18k", "1 2 3"],
  ["squeezed = 3", "1 2 3"],
  ["rtt > 0", ""],
  ["cpus = 64", "4"],
  ["changes > 0", "4"],
  ["health:away", "4"],
  ["simulated:yes", "3"],
  ["simulated:no web", "4"],
  ["mode:observe", "3"],
  ["kernel:5.15", "4"],
  ["driver:virtio", "3"],
])("the filter “%s” shows %s", (line, ids) => {
  const filter = parseFilter(line);
  expect(filter.problems).toEqual([]);
  expect(
    NODES.filter((one) => filter.test(one, figures))
      .map((one) => one.id)
      .join(" "),
  ).toBe(ids);
});

test.each([
  ["foo:bar", "“foo:bar” is not a filter"],
  ["constructor:x", "“constructor:x” is not a filter"],
  ["temperature > 3", "“temperature” is not a figure"],
  ["constructor > 3", "“constructor” is not a figure"],
  ["softirq >", "Enter a number after “softirq >”"],
  ["softirq > hot", "Enter a number after “softirq >”"],
  ["health:fine", "use live, stale, away, new"],
  ["simulated:maybe", "use yes or no"],
  ["label:", "Enter a label"],
])("the filter “%s” has a message, and its other parts apply", (line, sentence) => {
  const filter = parseFilter(`db-1 ${line}`);
  expect(filter.problems).toHaveLength(1);
  expect(filter.problems[0]).toContain(sentence);
  expect(NODES.filter((one) => filter.test(one, figures)).map((one) => one.id)).toEqual([1]);
});
