import type { Comparison, Experiment, Metric } from "./types";

/** A metric's label and unit; a command's own metrics (`command.NAME`) have only their name. */
export function metricOf(experiment: Pick<Experiment, "metrics">, name: string): Metric {
  return experiment.metrics[name] ?? { label: name.replace(/^command\./, ""), unit: "", better: "" };
}

/** An arm's name by its index among an experiment's arms. */
export function armName(experiment: Pick<Experiment, "arms" | "analysis">, arm: Comparison["arm"]): string {
  return experiment.arms[armIndex(experiment, arm)] ?? (arm.length === 0 ? "current settings" : arm.join(" × "));
}

export function armIndex({ analysis }: Pick<Experiment, "analysis">, arm: Comparison["arm"]): number {
  const wanted = arm.join();
  return analysis.arms.findIndex((one) => one.join() === wanted);
}

/** An experiment's comparisons of levels; of an A/A experiment, those of the baseline with itself. */
export function comparisonsOf({ spec, analysis }: Pick<Experiment, "spec" | "analysis">): Comparison[] {
  return spec.kind === "aa" ? Object.values(analysis.noise) : analysis.comparisons;
}
