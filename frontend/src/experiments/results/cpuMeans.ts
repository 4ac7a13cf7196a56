import { armIndex } from "../arms";
import type { Experiment } from "../types";

export const SHARES = ["busy", "softirq", "irq", "user", "system", "steal"] as const;
export type Share = (typeof SHARES)[number];

/** Mean percent of each CPU by arm over the counted runs, without A/A runs unless there are no others; null: unknown. */
export function cpuMeans(
  { runs, arms, analysis }: Pick<Experiment, "runs" | "arms" | "analysis">,
  share: Share,
): (number | null)[][] {
  const counted = runs.filter(({ discarded }) => discarded === null);
  const compared = counted.filter(({ planned }) => planned.stage === "main");
  const cpus = runs.reduce((most, run) => Math.max(most, run.cpus[share]?.length ?? 0), 0);
  const sums = arms.map(() => new Float64Array(cpus));
  const counts = arms.map(() => new Uint32Array(cpus));
  for (const run of compared.length > 0 ? compared : counted) {
    const place = armIndex({ analysis }, run.planned.arm);
    const [sum, count] = [sums[place], counts[place]];
    if (sum === undefined || count === undefined) continue;
    run.cpus[share]?.forEach((value, cpu) => {
      if (value === null) return;
      sum[cpu] = (sum[cpu] ?? 0) + value;
      count[cpu] = (count[cpu] ?? 0) + 1;
    });
  }
  return sums.map((sum, place) =>
    Array.from(sum, (total, cpu) => {
      const runsOf = counts[place]?.[cpu] ?? 0;
      return runsOf === 0 ? null : total / runsOf;
    }),
  );
}
