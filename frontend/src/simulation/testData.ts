import type { Cell, CellSummary } from "./types";

/** A cell's summary with these means; interval: None with one seed. */
export function summaryOf(cell: Partial<Cell>, response: number, interval?: [number, number]): CellSummary {
  const times = { compute: 60, idle: 30, spin: 8, switch: 1.5, overhead: 0.5 };
  return {
    cell: { scheme: "SB", pattern: "nn", job_type: "swl1", imbalance: 0.5, ...cell },
    seeds: interval === undefined ? 1 : 10,
    response_s: response,
    low_s: interval?.[0] ?? null,
    high_s: interval?.[1] ?? null,
    times,
    shares: { compute: 0.6, idle: 0.3, spin: 0.08, switch: 0.015, overhead: 0.005 },
    switches: 1000,
    messages: 5000,
  };
}
