import type { ComponentProps } from "react";
import { METRICS } from "../../api/metrics";
import type { TimeChart } from "../../charts/TimeChart";
import { type Figure, packetRate } from "../../lib/format";
import { type ChartName, chartMetrics, formatOf, type MetricName } from "../../lib/metrics";

/**
 * A chart. colours: of its lines, in the order of the metrics. format: overrides the format of the metrics' unit.
 * small: the metrics that the small chart draws; all when absent. readout: those whose values its title shows. end: of
 * the value axis, where it is fixed. isStacked: areas on top of each other.
 */
type ChartOf = {
  title: string;
  colours: string[];
  format?: (value: number | null) => Figure;
  absent: string;
  small?: MetricName[];
  readout?: MetricName[];
  isStacked?: boolean;
  end?: number;
};

/** By distance: near is green, another NUMA node red, unknown gray. */
const DISTANCE_COLOURS = ["ok", "rx", "user", "warn", "bad", "muted"];
const NO_DISTANCE = "The agent does not report received bytes by distance.";

const CHARTS: Record<ChartName, ChartOf> = {
  throughput: { title: "Throughput", colours: ["rx", "tx"], absent: "The netdevs' counters were not read." },
  packets: {
    title: "Packets",
    colours: ["rx", "tx"],
    format: packetRate,
    absent: "The netdevs' counters were not read.",
  },
  interrupts: { title: "Interrupts", colours: ["rx"], absent: "/proc/interrupts was not read." },
  softirq: { title: "Softirq, hottest CPU", colours: ["softirq"], absent: "/proc/stat was not read.", end: 100 },
  "round-trip": {
    title: "RTT",
    colours: ["muted", "softirq", "bad"],
    absent: "No TCP connection to another host was active, or none could be read.",
    small: ["rtt_p50_us", "rtt_p99_us"],
  },
  losses: {
    title: "Drops",
    colours: ["bad", "softirq", "tx", "user", "rx"],
    absent: "Neither netdevs, softnet_stat nor TCP counters were read.",
    small: ["softnet_dropped_per_s", "squeezed_per_s"],
  },
  distance: {
    title: "Received by distance",
    colours: DISTANCE_COLOURS,
    absent: NO_DISTANCE,
    readout: ["rx_bytes_remote_per_s"],
    isStacked: true,
  },
  polling: {
    title: "Received by distance",
    colours: DISTANCE_COLOURS,
    absent: NO_DISTANCE,
    readout: ["polled_bytes_remote_per_s"],
    isStacked: true,
  },
  agent: { title: "Agent overhead", colours: ["user"], absent: "The agent did not report its CPU time." },
};

/** A chart's title, format and lines; small: only the lines of the small chart. */
export function chartOf(name: ChartName, small: boolean): Omit<ComponentProps<typeof TimeChart>, "points" | "axis"> {
  const { title, colours, format, absent, end, isStacked, readout, ...chart } = CHARTS[name];
  const metrics = chartMetrics(name);
  const lines = metrics.map((metric, place) => ({
    key: metric,
    name: METRICS[metric].short,
    colour: `var(--${colours[place % colours.length]})`,
  }));
  return {
    title,
    lines: small && chart.small !== undefined ? lines.filter(({ key }) => chart.small?.includes(key)) : lines,
    format: format ?? formatOf(metrics[0] as MetricName),
    unit: METRICS[metrics[0] as MetricName].unit,
    absent,
    ...(end !== undefined && { end }),
    ...(isStacked && { isStacked }),
    ...(readout !== undefined && { readout }),
  };
}
