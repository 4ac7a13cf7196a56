import type { Schemas } from "../../api/client";
import { type Point, pointsOf } from "../../charts/seriesRing";
import type { ChartLine } from "../../charts/TimeChart";

export type PolicyClasses = Schemas["PolicyClasses"];
export type ClassReport = NonNullable<PolicyClasses["reported"]>[number];
export type Percentile = "p50_us" | "p95_us" | "p99_us";
type History = Schemas["ClassesHistory"];

/** Reports arrive with up to this delay: no gap is drawn in the last 5 s. */
const REPORT_DELAY_MS = 5000;

/** The colour of a class by its position among `of` classes. */
export function classColour(place: number, of: number): string {
  const share = of < 2 ? 0 : Math.round((100 * place) / (of - 1));
  return `color-mix(in oklch, var(--softirq) ${share}%, var(--rx))`;
}

export const classLines = (names: string[], figure: string): ChartLine[] =>
  names.map((name, place) => ({ key: `${figure} ${name}`, name, colour: classColour(place, names.length) }));

/** A policy's history as a chart's points, each class's figures by `f gold`. live: its end is the present. */
export function classPoints(history: History | undefined, policyId: number, live: boolean): Point[] {
  const of = history?.policies.find(({ policy_id }) => policy_id === policyId);
  if (history === undefined || of === undefined) return [];
  const columns = of.classes.flatMap(({ name, values }) =>
    Object.entries(values).map(([figure, column]) => [`${figure} ${name}`, column ?? []]),
  );
  const points = pointsOf({ ...history, values: Object.fromEntries(columns) });
  const known = points.findLastIndex((point) => Object.entries(point).some(([key, v]) => key !== "t" && v !== null));
  const unreportedMs = (points.length - 1 - known) * history.step_ms;
  return live && unreportedMs <= Math.max(REPORT_DELAY_MS, history.step_ms) ? points.slice(0, known + 1) : points;
}

/** S / N in percent; null without requests or without a source. */
export function attainedPercent({ source, requests, satisfied }: ClassReport): number | null {
  return source === null || requests === 0 ? null : (100 * satisfied) / requests;
}

export const SOURCES: Record<string, { label: string; about: string }> = {
  gate: { label: "gate", about: "Counted at the gate, which workers enter and leave per request" },
  histogram: { label: "histogram", about: "From the service's own Prometheus histogram" },
  tcp: {
    label: "TCP",
    about: "Estimated from round-trip times of the class's sockets; reflects the network more than the service",
  },
};
