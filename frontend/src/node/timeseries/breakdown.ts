import type { HeatBlock } from "../../charts/heatBlock";
import { NO_DATA } from "../../charts/heatBlock";
import type { SeriesAnswer } from "../../charts/seriesRing";
import type { ChartLine } from "../../charts/TimeChart";
import type { ChartName } from "../../lib/metrics";
import type { Inventory } from "../types";

/** Lines that one chart can tell apart. */
const MOST_LINES = 16;
const COLOURS = ["rx", "softirq", "ok", "bad", "tx", "user"];
const DASHES = [undefined, "5 3", "1.5 2.5"];

/** A line for each NIC and direction, interrupt or CPU. sel: the object whose panel a click on its name opens. */
export type PartLine = ChartLine & { sel: string };

type Parts = {
  of: string;
  metrics: readonly ("rx_bytes_per_s" | "tx_bytes_per_s" | "rx_packets_per_s" | "tx_packets_per_s")[];
};

/** The charts that have a line for each NIC, interrupt or CPU; the others show their metrics. */
export const PARTS: Partial<Record<ChartName, Parts>> = {
  throughput: { of: "NIC and direction", metrics: ["rx_bytes_per_s", "tx_bytes_per_s"] },
  packets: { of: "NIC and direction", metrics: ["rx_packets_per_s", "tx_packets_per_s"] },
  interrupts: { of: "IRQ, the busiest 16", metrics: [] },
  softirq: { of: "CPU, the highest 16", metrics: [] },
};

/** The NICs with lines of their own: the physical ones, or all but lo where there is none. */
export function nicsOf(inventory: Inventory | null): string[] {
  const netdevs = (inventory?.netdevs ?? []).filter(({ name }) => name !== "lo");
  const physical = netdevs.filter(({ virtual }) => !virtual);
  return (physical.length > 0 ? physical : netdevs).slice(0, MOST_LINES / 2).map(({ name }) => name);
}

/** The series of several NICs as one, with values by `rx_bytes_per_s eth0`. */
export function joinNics(answers: (SeriesAnswer & { nic: string })[]): SeriesAnswer {
  const values = answers.flatMap(({ nic, values: of }) =>
    Object.entries(of).map(([metric, column]) => [`${metric} ${nic}`, column] as const),
  );
  const { step_ms = 1000, times_ms = [] } = answers[0] ?? {};
  return { step_ms, times_ms, values: Object.fromEntries(values) };
}

/** The rows of a heatmap with the highest cells as series in percent, by CPU number; the selected CPU is among them. */
export function hottestCpus(block: HeatBlock, selected: number | null): SeriesAnswer {
  const maxima = Array.from({ length: block.rows }, (_, cpu) => ({ cpu, max: block.max(cpu) }));
  const known = maxima.filter(({ max }) => max !== NO_DATA).toSorted((a, b) => b.max - a.max);
  const first = known.filter(({ cpu }) => cpu === selected);
  const cpus = [...first, ...known.filter(({ cpu }) => cpu !== selected)].slice(0, MOST_LINES).map(({ cpu }) => cpu);
  const times_ms = Array.from({ length: block.columns }, (_, column) => block.startMs + column * block.columnMs);
  const columnOf = (cpu: number) =>
    times_ms.map((time) => {
      const cell = block.at(cpu, time + block.columnMs / 2);
      return cell === NO_DATA ? null : cell / 2;
    });
  const values = cpus.toSorted((a, b) => a - b).map((cpu) => [String(cpu), columnOf(cpu)] as const);
  return { step_ms: block.columnMs, times_ms, values: Object.fromEntries(values) };
}

/** The lines of a chart's parts, by the keys of its series. */
export function partLines(chart: ChartName, series: SeriesAnswer, inventory: Inventory | null): PartLine[] {
  const irqs = new Map(inventory?.irqs.map((irq) => [String(irq.irq), irq.name]));
  return Object.keys(series.values).map((key, place) => {
    const dash = DASHES[Math.floor(place / COLOURS.length) % DASHES.length];
    const line = { key, colour: `var(--${COLOURS[place % COLOURS.length]})`, ...(dash !== undefined && { dash }) };
    if (chart === "softirq") return { ...line, name: `CPU ${key}`, sel: `cpu:${key}` };
    if (chart === "interrupts") return { ...line, name: `IRQ ${key} ${irqs.get(key) ?? ""}`.trim(), sel: `irq:${key}` };
    const [metric = "", nic = ""] = key.split(" ");
    return { ...line, name: `${nic} ${metric.startsWith("rx") ? "received" : "sent"}`, sel: `nic:${nic}` };
  });
}

/** Why a chart has no line of the selected interrupt; null if it has one, and for other selections. */
export function missingLine(chart: ChartName, lines: readonly PartLine[], sel: string | undefined): string | null {
  if (chart !== "interrupts" || !sel?.startsWith("irq:") || lines.some((line) => line.sel === sel)) return null;
  return `IRQ ${sel.slice(4)} has no line: it is not among the busiest ${MOST_LINES} of this time range.`;
}
