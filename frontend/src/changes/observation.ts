import type { Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { formatFigure } from "../lib/format";
import { formatOf, type MetricName } from "../lib/metrics";

export type Observation = NonNullable<Schemas["Change"]["observation"]>;
export type ObservedFigure = Observation["figures"][number];

const CPU_LABELS: Record<string, string> = { cpu_busy_percent: "busy", cpu_softirq_percent: "softirq" };
const SHORT: Record<string, string> = { interrupts_per_s: "interrupts", dropped_per_s: "dropped" };
const NODE_LABELS: Record<string, string> = { rtt_p50_us: "RTT p50", rtt_p99_us: "RTT p99", dropped_per_s: "Dropped" };
const SUBJECTS: Record<string, (name: string) => string> = {
  cpu: (name) => `CPU ${name}`,
  irq: (name) => `IRQ ${name}`,
  nic: (name) => name,
};

const isMetric = (name: string): name is MetricName => name in METRICS;

/** `CPU 3, busy`, `IRQ 41, interrupts`, `Received`: what a figure is of, and its metric. */
export function figureLabel({ metric, subject }: Pick<ObservedFigure, "metric" | "subject">): string {
  const label = isMetric(metric) ? METRICS[metric].label : metric;
  if (subject === "") return NODE_LABELS[metric] ?? label;
  const [kind = "", name = ""] = subject.split(/:(.*)/);
  const what = (kind === "cpu" ? CPU_LABELS[metric] : undefined) ?? SHORT[metric] ?? label.toLowerCase();
  return `${SUBJECTS[kind]?.(name) ?? subject}, ${what}`;
}

/** A value of a figure with its unit; an unknown one is a dash. */
export function figureValue(metric: string, value: number | null): string {
  return formatFigure(isMetric(metric) ? formatOf(metric)(value) : { value: String(value ?? "–"), unit: "" });
}

const signed = (metric: string, value: number): string =>
  `${value > 0 ? "+" : value < 0 ? "−" : ""}${figureValue(metric, Math.abs(value))}`;

/** `−4.0 % to +2.2 %`: the differences that are usual; null where too little is on record. */
export function usualText({ metric, usual_least, usual_most }: ObservedFigure): string | null {
  if (usual_least === null || usual_most === null) return null;
  return `${signed(metric, usual_least)} to ${signed(metric, usual_most)}`;
}

export type Difference = { text: string; tone: "ok" | "bad" | "muted" | "moved" };

/**
 * A figure's difference: `▼ 44 %` with a tone where it is beyond the usual range, else `≈ usual`. Work that moves from one
 * CPU to another is neither better nor worse; null where a side is unknown.
 */
export function differenceOf({ metric, subject, before, after, has_moved }: ObservedFigure): Difference | null {
  if (before === null || after === null) return null;
  if (has_moved === false) return { text: "≈ usual", tone: "muted" };
  const difference = after - before;
  if (difference === 0) return { text: "the same", tone: "muted" };
  const isShare = isMetric(metric) && METRICS[metric].unit.startsWith("%");
  const size = Math.abs(difference);
  const amount = isShare
    ? `${formatFigure({ value: figureValue(metric, size).split(/\s/)[0] ?? "", unit: "points" })}`
    : before > 0 && size < 10 * before
      ? `${size >= before / 100 ? Math.round((100 * size) / before) : "<1"} %`
      : figureValue(metric, size);
  const text = `${difference < 0 ? "▼" : "▲"} ${amount}`;
  if (has_moved === null) return { text, tone: "muted" };
  const better = isMetric(metric) && !/^(cpu|irq):/.test(subject) ? METRICS[metric].better : "";
  if (better === "") return { text, tone: "moved" };
  return { text, tone: (better === "less") === difference < 0 ? "ok" : "bad" };
}

/**
 * The few figures of a banner, chosen by what the change touches and never by their differences: first what applications
 * notice (RTT, drops), then the busiest of its CPUs before it, and interrupts.
 */
export function headlines(figures: ObservedFigure[]): ObservedFigure[] {
  const first = (...tests: ((figure: ObservedFigure) => boolean)[]) =>
    tests.flatMap((test) => figures.find(test) ?? [])[0];
  const busiest = figures
    .filter(({ metric, subject }) => metric === "cpu_busy_percent" && subject.startsWith("cpu:"))
    .reduce<ObservedFigure | undefined>((a, b) => (a && (a.before ?? 0) >= (b.before ?? 0) ? a : b), undefined);
  const ofNode = (name: string) => (figure: ObservedFigure) => figure.metric === name && figure.subject === "";
  const interrupts = first(
    ({ metric, subject }) => metric === "interrupts_per_s" && subject !== "",
    ofNode("interrupts_per_s"),
  );
  const cpu = busiest ?? first(ofNode("cpu_softirq_percent"));
  return [first(ofNode("rtt_p99_us")), first(ofNode("dropped_per_s")), cpu, interrupts].filter(
    (figure) => figure !== undefined,
  );
}

/** `2 min before, 78 s after`: how much of both windows is on record. */
export const windowText = ({ before_s, after_s }: Observation): string =>
  `${Math.round(before_s) >= 119 ? "2 min" : `${Math.round(before_s)} s`} before, ${
    Math.round(after_s) >= 119 ? "2 min" : `${Math.round(after_s)} s`
  } after`;
