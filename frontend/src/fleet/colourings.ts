import { type Figure, micros, percent, perSecond } from "../lib/format";
import type { ColorBy, FigureColumn } from "./search";

/** How a figure becomes a colour: its column, its scale's ends, and how it is written. */
export type Colouring = {
  label: string;
  explanation: string;
  column: FigureColumn;
  cpu?: "softirq_cpu" | "busiest_cpu";
  ends: [string, string];
  /** 0 to 1 on the colour scale. */
  position(value: number): number;
  format(value: number): Figure;
};

const share = (value: number) => value / 100;
const decades = (from: number, to: number) => (value: number) =>
  value <= from ? 0 : Math.log10(value / from) / Math.log10(to / from);

export const COLOURINGS: Record<ColorBy, Colouring> = {
  softirq: {
    label: "softirq, hottest CPU",
    explanation: "softirq on the hottest CPU",
    column: "softirq_percent",
    cpu: "softirq_cpu",
    ends: ["0", "100 %"],
    position: share,
    format: percent,
  },
  busiest: {
    label: "busiest CPU",
    explanation: "the busiest CPU",
    column: "busiest_percent",
    cpu: "busiest_cpu",
    ends: ["0", "100 %"],
    position: share,
    format: percent,
  },
  drops: {
    label: "drops",
    explanation: "packets dropped, logarithmic",
    column: "dropped_per_s",
    ends: ["≤ 1 /s", "10 k/s"],
    position: decades(1, 10_000),
    format: perSecond,
  },
  rtt: {
    label: "RTT p99",
    explanation: "TCP round trip p99, logarithmic",
    column: "rtt_p99_us",
    ends: ["≤ 10 µs", "100 ms"],
    position: decades(10, 100_000),
    format: micros,
  },
};
