import type { Experiment, Interval } from "../types";

/** One level of a sweep. place: index of its arm; x: its value, or its index; y: the measured mean; authors: the published value. */
export type SweepPoint = { place: number; name: string; x: number; y: Interval | null; authors: number | null };

/** The levels of a sweep over one factor, in order of their values; numeric where every level has a value. */
export function sweepPoints(
  { spec, analysis, arms, published }: Pick<Experiment, "spec" | "analysis" | "arms" | "published">,
  metric: string,
): { points: SweepPoint[]; numeric: boolean } {
  const levels = spec.factors[0]?.levels ?? [];
  const numeric = levels.length > 0 && levels.every(({ value }) => value !== null);
  const points = analysis.arms.map((arm, place): SweepPoint => {
    const index = arm[0] ?? 0;
    const level = levels[index];
    const name = arms[place] ?? level?.name ?? "";
    return {
      place,
      name: level?.name ?? name,
      x: numeric ? (level?.value ?? index) : index,
      y: analysis.means[metric]?.[place] ?? null,
      authors: published.find((row) => row.metric === metric && row.arms.includes(place))?.value ?? null,
    };
  });
  return { points: points.toSorted((a, b) => a.x - b.x), numeric };
}

/** The means of a sweep over two factors: rows by the first factor's levels, columns by the second's. */
export function sweepMatrix(
  { spec, analysis }: Pick<Experiment, "spec" | "analysis">,
  metric: string,
): (Interval | null)[][] {
  const [rows, columns] = spec.factors;
  const means = analysis.means[metric] ?? [];
  const at = new Map(analysis.arms.map((arm, place) => [arm.join(), means[place] ?? null]));
  return (rows?.levels ?? []).map((_, row) =>
    (columns?.levels ?? []).map((_, column) => at.get(`${row},${column}`) ?? null),
  );
}
