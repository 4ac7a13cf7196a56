import { coveredSteps } from "./heatBlock";

/** A step of a chart: its start in Unix milliseconds and each metric's mean, null where unknown. */
export type Point = { t: number } & Record<string, number | null>;

/** The used part of the response of /series. */
export type SeriesAnswer = { step_ms: number; times_ms: number[]; values: Record<string, (number | null)[]> };

type Bucket = { step: number; sums: Record<string, { sum: number; weight: number }> };

/** The last `length` steps of metrics: filled from history once, then from live samples. */
export class SeriesRing {
  readonly stepMs: number;
  readonly length: number;
  private readonly buckets: Map<number, Bucket> = new Map();
  private last: number;

  constructor(length: number, stepMs: number, endMs: number) {
    this.length = length;
    this.stepMs = stepMs;
    this.last = Math.floor(endMs / stepMs);
  }

  /** Advances the window to include timeMs. */
  advance(timeMs: number): void {
    const step = Math.floor(timeMs / this.stepMs);
    if (step <= this.last) return;
    this.last = step;
    for (const key of this.buckets.keys()) if (key <= step - this.length) this.buckets.delete(key);
  }

  /** Adds one live sample; several in a step are averaged by their durations. */
  push(timeMs: number, durationMs: number, values: Record<string, number | null>): void {
    this.advance(timeMs - this.stepMs / 2);
    const [from, to] = coveredSteps(timeMs - durationMs, timeMs, this.stepMs);
    for (let step = from; step <= to; step++) this.add(step, durationMs, values);
  }

  /** Fills steps without data from history. */
  fill(series: SeriesAnswer): void {
    const known = new Set(this.buckets.keys());
    series.times_ms.forEach((time, index) => {
      const values = Object.fromEntries(
        Object.entries(series.values).map(([name, column]) => [name, column[index] ?? null]),
      );
      const [from, to] = coveredSteps(time, time + series.step_ms, this.stepMs);
      for (let step = from; step <= to; step++) if (!known.has(step)) this.add(step, series.step_ms, values);
    });
  }

  /** All steps of the window, oldest first; a step without data is a point without values. */
  points(): Point[] {
    return Array.from({ length: this.length }, (_, index) => {
      const step = this.last - this.length + 1 + index;
      const sums = this.buckets.get(step)?.sums ?? {};
      const means = Object.entries(sums).map(([name, { sum, weight }]) => [name, sum / weight]);
      return { ...Object.fromEntries(means), t: step * this.stepMs } as Point;
    });
  }

  private add(step: number, weight: number, values: Record<string, number | null>): void {
    if (step > this.last || step <= this.last - this.length) return;
    const bucket = this.buckets.get(step) ?? { step, sums: {} };
    for (const [name, value] of Object.entries(values)) {
      if (value === null || !Number.isFinite(value)) continue;
      this.buckets.set(step, bucket);
      const entry = bucket.sums[name] ?? { sum: 0, weight: 0 };
      bucket.sums[name] = { sum: entry.sum + value * weight, weight: entry.weight + weight };
    }
  }
}

/** The points of a /series response. */
export function pointsOf(series: SeriesAnswer): Point[] {
  return series.times_ms.map((t, index) => {
    const values = Object.entries(series.values).map(([name, column]) => [name, column[index] ?? null]);
    return { ...Object.fromEntries(values), t } as Point;
  });
}
