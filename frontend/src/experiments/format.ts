import { micros, percent, perSecond, significant, text, UNKNOWN } from "../lib/format";
import type { Comparison, Experiment, Interval, Kind, Metric, State, Summary, Verdict } from "./types";

export const KINDS: Record<Kind, { label: string; about: string }> = {
  aa: { label: "A/A", about: "The node against itself: how large a difference chance alone makes here." },
  ab: { label: "A/B", about: "Two settings of the node against each other, in the order ABBA or BAAB." },
  sweep: { label: "Sweep", about: "One or two things in several steps, each step against the first." },
};

export const STATE_TONES: Record<State, string> = {
  queued: "",
  running: "warn",
  done: "ok",
  stopped: "bad",
  cancelled: "",
  failed: "bad",
};

/** Where an experiment stands, in a word or two: `running`, `waits, 2 before it`. */
export function standing({ state, place }: Pick<Summary, "state" | "place">): string {
  if (state !== "queued") return state === "stopped" ? "stopped by a guardrail" : state;
  return place === null ? "waits" : place <= 1 ? "waits, next" : `waits, ${place - 1} before it`;
}

const BIT_UNITS = ["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"];

/** A figure with its unit: `9.41 Gbit/s`, `118 µs`, `0.0031 s/Gbit`. */
export function figureText(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (unit === "bit/s") {
    const power = Math.max(0, Math.min(4, Math.floor(Math.log10(Math.max(1, Math.abs(value))) / 3)));
    return `${significant(value / 1000 ** power)} ${BIT_UNITS[power]}`;
  }
  if (unit === "1/s") return text(perSecond(value));
  if (unit === "µs") return text(micros(value));
  if (unit === "% of one CPU") return `${significant(value)} %`;
  if (unit === "%") return text(percent(value));
  const plain = value !== 0 && Math.abs(value) < 0.1 ? value.toPrecision(3) : significant(value);
  return unit === "" ? plain : `${plain} ${unit}`;
}

const signed = (share: number) => {
  const value = share * 100;
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size >= 9.95 ? 0 : size >= 0.095 ? 1 : 2;
  const shown = size.toFixed(digits);
  return `${Number(shown) === 0 ? "" : value < 0 ? "−" : "+"}${shown}`;
};

/** A relative difference: `+10 %`, `−1.2 %`. */
export function effectText(share: number | null | undefined): string {
  return share === null || share === undefined ? UNKNOWN : `${signed(share)} %`;
}

/** A relative difference with its interval: `+10 % (+8.1 to +12 %)`. */
export function effectWithInterval(effect: Interval | null): string {
  if (effect === null) return UNKNOWN;
  return `${effectText(effect.value)} (${signed(effect.low)} to ${signed(effect.high)} %)`;
}

export type VerdictWords = { icon: string; words: string; tone: "ok" | "bad" | "warn" | "muted" | "" };

/** What was concluded of a figure, in words with a sign; better: the direction that is an improvement. */
export function verdictWords(verdict: Verdict, better: Metric["better"]): VerdictWords {
  if (verdict === "no-difference") return { icon: "=", words: "no difference found", tone: "muted" };
  if (verdict === "unsteady")
    return { icon: "≈", words: "unsteady: the node differs from itself as much", tone: "warn" };
  if (verdict === "too-few") return { icon: "?", words: "too few runs to say", tone: "muted" };
  const icon = verdict === "higher" ? "▲" : "▼";
  if (better === "") return { icon, words: verdict, tone: "" };
  const good = (verdict === "higher") === (better === "more");
  return { icon, words: `${verdict}, ${good ? "better" : "worse"}`, tone: good ? "ok" : "bad" };
}

/** A p-value as papers write it. */
export function pText(p: number | null): string {
  return p === null ? UNKNOWN : p < 0.001 ? "< 0.001" : p.toFixed(3);
}

/** What a figure is called; a command's own figures (`command.NAME`) have only their name. */
export function metricOf(experiment: Pick<Experiment, "metrics">, name: string): Metric {
  return experiment.metrics[name] ?? { label: name.replace(/^command\./, ""), unit: "", better: "" };
}

/** An arm's name by its place among an experiment's arms. */
export function armName(experiment: Pick<Experiment, "arms" | "analysis">, arm: Comparison["arm"]): string {
  return experiment.arms[armIndex(experiment, arm)] ?? (arm.length === 0 ? "as it is" : arm.join(" × "));
}

export function armIndex({ analysis }: Pick<Experiment, "analysis">, arm: Comparison["arm"]): number {
  const wanted = arm.join();
  return analysis.arms.findIndex((one) => one.join() === wanted);
}

/** The comparisons that a reader looks at: of the node with itself where that is all there is. */
export function comparisonsOf({ spec, analysis }: Pick<Experiment, "spec" | "analysis">): Comparison[] {
  return spec.kind === "aa" ? Object.values(analysis.noise) : analysis.comparisons;
}
