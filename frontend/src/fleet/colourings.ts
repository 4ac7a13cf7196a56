import type { FleetMetric } from "../lib/metrics";
import type { ColorBy } from "./search";

/** The mapping of a figure to the colour scale: its column and the ends of the scale. */
export type Colouring = {
  explanation: string;
  column: FleetMetric;
  cpu?: "softirq_cpu" | "busiest_cpu";
  ends: [string, string];
  /** Position on the colour scale, 0 to 1. */
  position(value: number): number;
};

const share = (value: number) => value / 100;
const decades = (from: number, to: number) => (value: number) =>
  value <= from ? 0 : Math.log10(value / from) / Math.log10(to / from);

export const COLOURINGS: Record<ColorBy, Colouring> = {
  softirq: {
    explanation: "softirq on the hottest CPU",
    column: "softirq_cpu_percent",
    cpu: "softirq_cpu",
    ends: ["0", "100 %"],
    position: share,
  },
  busiest: {
    explanation: "the busiest CPU",
    column: "busiest_cpu_percent",
    cpu: "busiest_cpu",
    ends: ["0", "100 %"],
    position: share,
  },
  drops: {
    explanation: "packets dropped, logarithmic",
    column: "softnet_dropped_per_s",
    ends: ["≤ 1 /s", "10 k/s"],
    position: decades(1, 10_000),
  },
  rtt: {
    explanation: "TCP round trip p99, logarithmic",
    column: "rtt_p99_us",
    ends: ["≤ 10 µs", "100 ms"],
    position: decades(10, 100_000),
  },
  "wrong-node": {
    explanation: "received bytes handled on another NUMA node than their process",
    column: "wrong_node_percent",
    ends: ["0", "100 %"],
    position: share,
  },
};
