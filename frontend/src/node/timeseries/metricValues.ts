import type { Point } from "../../charts/seriesRing";
import { FIRST_LABEL, type RatesFrame, UNKNOWN_SHARE, UNKNOWN_U32 } from "../../live/frames";
import type { Inventory } from "../types";

/** What the charts show, named as in /series. */
export const METRICS = [
  "rx_bytes_per_s",
  "tx_bytes_per_s",
  "rx_packets_per_s",
  "tx_packets_per_s",
  "interrupts_per_s",
  "dropped_per_s",
  "squeezed_per_s",
  "rtt_p50_us",
  "rtt_p95_us",
  "rtt_p99_us",
  "retransmits_per_s",
  "agent_cpu_percent",
  "agent_rss_bytes",
] as const;
type MetricName = (typeof METRICS)[number];
export type Values = Record<MetricName, number | null>;

/** The known numbers of a u32 column added up, null when none is known. */
export function sumKnown(column: Uint32Array | null): number | null {
  let sum: number | null = null;
  for (const value of column ?? []) if (value !== UNKNOWN_U32) sum = (sum ?? 0) + value;
  return sum;
}

/** The index and per cent of a share column's largest value, null when none is known. */
export function largestShare(column: Uint8Array | null): { cpu: number; percent: number } | null {
  let best: { cpu: number; percent: number } | null = null;
  (column ?? new Uint8Array()).forEach((value, cpu) => {
    if (value !== UNKNOWN_SHARE && (best === null || value / 2 > best.percent)) best = { cpu, percent: value / 2 };
  });
  return best;
}

const NETDEV = ["rx_bytes", "tx_bytes", "rx_packets", "tx_packets"] as const;

/** Adds up one counter of the physical netdevs, of all but lo where those are unknown; as the backend does. */
function netdevSum(frame: RatesFrame, inventory: Inventory | null, field: (typeof NETDEV)[number]): number | null {
  if (frame.netdevs === null) return null;
  const physical = inventory?.netdevs.filter((netdev) => !netdev.virtual).map((netdev) => netdev.name);
  let sum: number | null = null;
  for (const counts of frame.netdevs) {
    if (counts[0] === "lo" || (physical !== undefined && !physical.includes(counts[0]))) continue;
    const value = counts[NETDEV.indexOf(field) + 1];
    if (typeof value === "number") sum = (sum ?? 0) + value;
  }
  return sum;
}

/** Interrupts of devices, without architecture rows such as the timer's. */
function numberedInterrupts({ irqs }: RatesFrame): number | null {
  if (irqs === null) return null;
  return irqs.counts.reduce((sum, amount, index) => ((irqs.ids[index] ?? 0) < FIRST_LABEL ? sum + amount : sum), 0);
}

/** One live frame's figures, in base units a second. */
export function valuesOf(frame: RatesFrame, inventory: Inventory | null): Values {
  const rate = (amount: number | null) => (amount === null ? null : amount / frame.duration_s);
  const netdev = (field: (typeof NETDEV)[number]) => rate(netdevSum(frame, inventory, field));
  return {
    rx_bytes_per_s: netdev("rx_bytes"),
    tx_bytes_per_s: netdev("tx_bytes"),
    rx_packets_per_s: netdev("rx_packets"),
    tx_packets_per_s: netdev("tx_packets"),
    interrupts_per_s: rate(numberedInterrupts(frame)),
    dropped_per_s: rate(sumKnown(frame.count("dropped"))),
    squeezed_per_s: rate(sumKnown(frame.count("time_squeeze"))),
    rtt_p50_us: frame.tcp?.[1] ?? null,
    rtt_p95_us: frame.tcp?.[2] ?? null,
    rtt_p99_us: frame.tcp?.[3] ?? null,
    retransmits_per_s: rate(frame.tcp_retransmits),
    agent_cpu_percent: frame.agent_cpu_s === null ? null : (100 * frame.agent_cpu_s) / frame.duration_s,
    agent_rss_bytes: frame.agent_rss_bytes,
  };
}

/** Means over points, null where a metric was never known. */
export function meanOf(points: Point[]): Values {
  const means = METRICS.map((name) => {
    const known = points.map((point) => point[name]).filter((value) => value !== null && value !== undefined);
    return [name, known.length === 0 ? null : known.reduce((sum, value) => sum + value, 0) / known.length];
  });
  return Object.fromEntries(means) as Values;
}

/** Received packets for each interrupt of a NIC; null without either. */
export function packetsPerInterrupt(frames: RatesFrame[], inventory: Inventory | null): number | null {
  const ofNics = new Set(inventory?.irqs.filter((irq) => irq.netdev !== null).map((irq) => irq.irq));
  let packets = 0;
  let interrupts = 0;
  for (const frame of frames) {
    packets += netdevSum(frame, inventory, "rx_packets") ?? 0;
    frame.irqs?.ids.forEach((id, index) => {
      if (ofNics.has(id)) interrupts += frame.irqs?.counts[index] ?? 0;
    });
  }
  return interrupts === 0 ? null : packets / interrupts;
}
