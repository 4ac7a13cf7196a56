/** Names, units and formats of metrics, all from the generated src/api/metrics.ts. */

import { SOFTIRQ_BOUND_PERCENT } from "../api/constants";
import { METRICS } from "../api/metrics";
import { bitRate, bytes, type Figure, micros, percent, perSecond, ratio } from "./format";

type Rows = typeof METRICS;
export type MetricName = keyof Rows;
/** Where a metric is shown; see src/api/metrics.ts. */
type Place = "history" | "fleet" | "experiment" | "guardrail";
type Shown<P extends Place> = { [K in MetricName]: Rows[K][P] extends true ? K : never }[MetricName];
export type HistoryMetric = Shown<"history">;
export type FleetMetric = Shown<"fleet">;
export type GuardrailMetric = Shown<"guardrail">;
export type ChartName = Exclude<Rows[MetricName]["chart"], "">;

const NAMES = Object.keys(METRICS) as MetricName[];

/** The metrics that are shown in a place, in the order of the registry. */
export function shownIn<P extends Place>(place: P): Shown<P>[] {
  return NAMES.filter((name) => METRICS[name][place]) as Shown<P>[];
}

export const HISTORY_METRICS = shownIn("history");
export const FLEET_METRICS = shownIn("fleet");
export const GUARDRAIL_METRICS = shownIn("guardrail");

/** The node page's charts. */
export const CHART_NAMES = [...new Set(NAMES.map((name) => METRICS[name].chart))].filter((chart) => chart !== "");

/** The metrics of one of the node page's charts. */
export function chartMetrics(chart: ChartName): MetricName[] {
  return NAMES.filter((name) => METRICS[name].chart === chart);
}

/** `Packets dropped by softnet, 1/s`; a name that is not a metric is returned unchanged. */
export function labelWithUnit(name: string): string {
  const metric = name in METRICS ? METRICS[name as MetricName] : null;
  if (metric === null) return name;
  return metric.unit === "" ? metric.label : `${metric.label}, ${metric.unit}`;
}

/** A guardrail metric's label and unit: `RTT p99` in µs. */
export const GUARDRAIL_LABELS = Object.fromEntries(
  GUARDRAIL_METRICS.map((name) => {
    const { short, unit } = METRICS[name];
    return [name, { label: short.charAt(0).toUpperCase() + short.slice(1), unit }];
  }),
) as Record<GuardrailMetric, { label: string; unit: string }>;

/** The load of a CPU, in percent, from which it is shown in red. */
export const isHot = (percent: number | undefined): boolean =>
  percent !== undefined && percent >= SOFTIRQ_BOUND_PERCENT;

type Format = (value: number | null | undefined) => Figure;

const withUnit =
  (unit: string): Format =>
  (value) => ({ ...ratio(value), unit: typeof value === "number" ? unit : "" });

const FORMATS: Record<Rows[MetricName]["unit"], Format> = {
  "B/s": bitRate,
  "bit/s": (value) => bitRate(typeof value === "number" ? value / 8 : value),
  "1/s": perSecond,
  µs: micros,
  B: bytes,
  "%": percent,
  "% of one CPU": withUnit("%"),
  "s/Gbit": withUnit("s/Gbit"),
  "Gbit/s per CPU": withUnit("Gbit/s per CPU"),
  s: withUnit("s"),
  "": ratio,
};

/** How a metric's values are written, by its unit. */
export function formatOf(name: MetricName): Format {
  return FORMATS[METRICS[name].unit];
}
