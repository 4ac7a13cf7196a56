import { axisEnd } from "../../charts/TimeChart";
import { seconds, shareText } from "../format";
import { isReordered } from "../schemes";
import type { CellSummary, Pattern, SystemTime } from "../types";

/** The parts of system time in the order in which bars stack them, as the authors' figures do. */
export const PARTS = ["compute", "idle", "spin", "switch", "overhead"] as const satisfies (keyof SystemTime)[];
export type Part = (typeof PARTS)[number];

export const PART_LABELS: Record<Part, string> = {
  compute: "compute",
  idle: "idle",
  spin: "spin",
  switch: "context switches",
  overhead: "overhead",
};

/** A bar of both charts: its scheme, response time with its interval, and system time in node-seconds. */
export type Bar = SystemTime & {
  scheme: string;
  reordered: boolean;
  response: number;
  /** Distances from the mean to the ends of the interval; 0 with one seed. */
  interval: [number, number];
};

/** The results that charts of a pattern and an imbalance show, by job type. */
export function charted(
  cells: readonly CellSummary[],
  pattern: Pattern,
  imbalance: number,
): { jobType: string; cells: CellSummary[] }[] {
  const shown = cells.filter(({ cell }) => cell.pattern === pattern && cell.imbalance === imbalance);
  return [...new Set(shown.map(({ cell }) => cell.job_type))].map((jobType) => ({
    jobType,
    cells: shown.filter(({ cell }) => cell.job_type === jobType),
  }));
}

export const barOf = ({ cell, response_s, low_s, high_s, times }: CellSummary): Bar => ({
  ...times,
  scheme: cell.scheme,
  reordered: isReordered(cell.scheme),
  response: response_s,
  interval: [response_s - (low_s ?? response_s), (high_s ?? response_s) - response_s],
});

/** Over how many times the longest bar an axis extends for the sake of intervals: of two seeds they are very wide. */
const MOST = 2.5;

/** The end of the axis of response times, beyond all intervals that do not dwarf the bars. */
export function responseEnd(bars: readonly Bar[]): number {
  const longest = Math.max(0, ...bars.map(({ response }) => response));
  return axisEnd(Math.min(MOST * longest, Math.max(0, ...bars.map(highOf))));
}

/** Where the interval of a bar ends. */
export const highOf = ({ response, interval }: Bar): number => response + interval[1];

/** The end of the axis of system times. */
export const systemEnd = (bars: readonly Bar[]): number =>
  axisEnd(Math.max(0, ...bars.map((bar) => PARTS.reduce((sum, part) => sum + bar[part], 0))));

/** Round ticks from 0 to the end of an axis: of 20 every 5, of 250 every 50. */
export function ticksTo(end: number): number[] {
  const steps = end.toExponential().startsWith("2e") ? 4 : 5;
  return Array.from({ length: steps + 1 }, (_, place) => (place * end) / steps);
}

/** What the chart of response times shows, in words. */
export const responseWords = (cells: readonly CellSummary[]): string =>
  cells.map(({ cell, response_s }) => `${cell.scheme} ${seconds(response_s)}`).join(", ");

/** What the chart of system times shows, in words. */
export const systemWords = (cells: readonly CellSummary[]): string =>
  cells
    .map(
      ({ cell, shares }) =>
        `${cell.scheme} ${PARTS.map((part) => `${PART_LABELS[part]} ${shareText(shares[part])}`).join(", ")}`,
    )
    .join("; ");
