import type { Schemas } from "../../api/client";
import { type Point, pointsOf } from "../../charts/seriesRing";
import type { LineOf } from "../../charts/TimeChart";

export type PolicyClasses = Schemas["PolicyClasses"];
export type ClassReport = NonNullable<PolicyClasses["told"]>[number];
export type Percentile = "p50_us" | "p95_us" | "p99_us";
type History = Schemas["ClassesHistory"];

/** What happened in the last seconds is not told yet: no gap is drawn there. */
const NOT_YET_MS = 5000;

/** The colour of a class by its place: from the first to the last through the hues between. */
export function colourOf(place: number, of: number): string {
  const share = of < 2 ? 0 : Math.round((100 * place) / (of - 1));
  return `color-mix(in oklch, var(--softirq) ${share}%, var(--rx))`;
}

export const linesOf = (names: string[], figure: string): LineOf[] =>
  names.map((name, place) => ({ key: `${figure} ${name}`, name, colour: colourOf(place, names.length) }));

/** A policy's history as a chart's points, each class's figures by `f gold`. live: its end is the present. */
export function classPoints(history: History | undefined, policyId: number, live: boolean): Point[] {
  const of = history?.policies.find(({ policy_id }) => policy_id === policyId);
  if (history === undefined || of === undefined) return [];
  const columns = of.classes.flatMap(({ name, values }) =>
    Object.entries(values).map(([figure, column]) => [`${figure} ${name}`, column ?? []]),
  );
  const points = pointsOf({ ...history, values: Object.fromEntries(columns) });
  const known = points.findLastIndex((point) => Object.entries(point).some(([key, v]) => key !== "t" && v !== null));
  const untold = (points.length - 1 - known) * history.step_ms;
  return live && untold <= Math.max(NOT_YET_MS, history.step_ms) ? points.slice(0, known + 1) : points;
}

/** S of N in per cent, null without a request or with a source that tells nothing. */
export function attainedPercent({ source, requests, satisfied }: ClassReport): number | null {
  return source === null || requests === 0 ? null : (100 * satisfied) / requests;
}

export const SOURCES: Record<string, { label: string; about: string }> = {
  gate: { label: "gate", about: "Counted where the service's workers ask to go in and tell when they leave" },
  histogram: { label: "histogram", about: "From the service's own Prometheus histogram" },
  tcp: {
    label: "TCP",
    about: "Guessed from round trips of the class's sockets, which tell of the network and not of the service: weak",
  },
};
