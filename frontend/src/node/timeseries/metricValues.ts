import { ABSENT_SHARE } from "../../api/constants";
import type { Point } from "../../charts/seriesRing";
import { HISTORY_METRICS, type HistoryMetric } from "../../lib/metrics";
import type { RatesFrame } from "../../live/frames";
import type { Inventory } from "../types";

export type Values = Record<HistoryMetric, number | null>;

/** The CPU with the largest value of a share column, in percent; null if all are unknown. Frames name no such CPU. */
export function largestShare(column: Uint8Array | null): { cpu: number; percent: number } | null {
  let best: { cpu: number; percent: number } | null = null;
  (column ?? new Uint8Array()).forEach((value, cpu) => {
    if (value !== ABSENT_SHARE && (best === null || value / 2 > best.percent)) best = { cpu, percent: value / 2 };
  });
  return best;
}

/** Means over points; null for metrics without a value. */
export function meanOf(points: Point[]): Values {
  const means = HISTORY_METRICS.map((name) => {
    const known = points.map((point) => point[name]).filter((value) => value !== null && value !== undefined);
    return [name, known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length];
  });
  return Object.fromEntries(means) as Values;
}

/**
 * Received packets per interrupt of the NICs that the inventory lists; null without one. Computed here because frames
 * and history do not have the metric: it is defined over several intervals, in experiments over a run.
 */
export function packetsPerInterrupt(frames: RatesFrame[], inventory: Inventory | null): number | null {
  const ofNics = new Set(inventory?.irqs.filter((irq) => irq.netdev !== null).map((irq) => irq.irq));
  let packets = 0;
  let interrupts = 0;
  for (const frame of frames) {
    packets += (frame.metrics.rx_packets_per_s ?? 0) * frame.duration_s;
    frame.irqs?.ids.forEach((id, index) => {
      if (ofNics.has(id)) interrupts += frame.irqs?.counts[index] ?? 0;
    });
  }
  return interrupts === 0 ? null : packets / interrupts;
}
