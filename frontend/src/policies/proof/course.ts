import type { Range } from "../../charts/TimeOverlay";
import { type Scale, scaleOver } from "../../experiments/results/axisScale";
import type { MetricProof, VersionProof } from "./types";

/** The effect of one version on a metric over time. */
export type Course = { version: number; from: number; proof: MetricProof; points: CoursePoint[] };
export type CoursePoint = { t: number; estimate: number; low: number | null; high: number | null; episodes: number };

/** The versions with figures of a metric, oldest first. */
export function coursesOf(versions: VersionProof[], metric: string): Course[] {
  return versions
    .flatMap((version) => {
      const proof = version.metrics.find((one) => one.metric === metric);
      if (proof === undefined || proof.course.length === 0) return [];
      const points = proof.course.map(({ at, ...point }) => ({ t: Date.parse(at), ...point }));
      return [{ version: version.version, from: Date.parse(version.started_at), proof, points }];
    })
    .sort((a, b) => a.from - b.from);
}

/** A course whose last point holds until a time: nothing else is known until the next episode ends. */
export function heldUntil<C extends Course>(course: C, timeMs: number): C {
  const last = course.points.at(-1);
  if (last === undefined || last.t >= timeMs) return course;
  return { ...course, points: [...course.points, { ...last, t: timeMs }] };
}

/** Rows for a chart: one per time, with the estimate and the interval of the version that has a point there. */
export type Row = { t: number; [series: string]: number | [number, number] | null };
export const estimateKey = (version: number): string => `v${version}`;
export const bandKey = (version: number): string => `v${version} interval`;

export function rowsOf(courses: Course[]): Row[] {
  return courses
    .flatMap(({ version, points }) =>
      points.map(({ t, estimate, low, high }) => ({
        t,
        [estimateKey(version)]: estimate,
        [bandKey(version)]: low === null || high === null ? null : ([low, high] as [number, number]),
      })),
    )
    .sort((a, b) => a.t - b.t);
}

/** The time from the first version's beginning to the last point. */
export function rangeOf(courses: Course[]): Range {
  const from = Math.min(...courses.map((course) => course.from));
  return { from, to: Math.max(from + 1000, ...courses.flatMap(({ points }) => points.map(({ t }) => t))) };
}

/** Times in which a version has no interval. */
export function withoutInterval(courses: Course[]): Range[] {
  return courses.flatMap(({ from, points }) => {
    const known = points.find(({ low, high }) => low !== null && high !== null);
    const to = known?.t ?? points.at(-1)?.t ?? from;
    return to > from ? [{ from, to }] : [];
  });
}

/** Share of the last interval's length by which the first, wide intervals may exceed it. */
const ROOM = 0.75;

/** Share of the value axis for labels above and below. */
const LABELS = 0.06;

/** The value axis: the latest estimate and interval of each version with room; earlier intervals may leave it. */
export function effectScale(courses: Course[]): Scale {
  const ends = courses.flatMap(({ points }) => {
    const last = points.at(-1);
    if (last === undefined) return [];
    if (last.low === null || last.high === null) return [last.estimate];
    const room = ROOM * (last.high - last.low);
    return [last.low - room, last.high + room];
  });
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const labels = LABELS * (high - low);
  return scaleOver([low - labels, high + labels]);
}

/** What was known at a time; null before the first point and after the last one. */
export function knownAt({ points }: Course, timeMs: number | null): CoursePoint | null {
  if (timeMs === null) return points.at(-1) ?? null;
  if (timeMs > (points.at(-1)?.t ?? 0)) return null;
  return points.findLast(({ t }) => t <= timeMs) ?? null;
}

/** Labels at times, of which those that would overlap the one before are left out. */
export function spaced<T extends { t: number }>(labels: T[], least: number): T[] {
  const kept: T[] = [];
  for (const label of labels.toSorted((a, b) => a.t - b.t))
    if (label.t - (kept.at(-1)?.t ?? Number.NEGATIVE_INFINITY) >= least) kept.push(label);
  return kept;
}
