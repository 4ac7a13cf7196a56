import type { Schemas } from "../../api/client";
import { bytes, formatFigure } from "../../lib/format";
import type { NumaEntry } from "./numaTasks";

export type NodeTraffic = Schemas["NodeNuma"]["traffic"][number];
type Amount = Pick<NodeTraffic, "cpus" | "bytes_per_s">;

/** Accesses between NUMA nodes in a common unit. values: by row, null where unknown. title: of one value. */
export type TrafficMatrix = {
  unit: string;
  isBytes: boolean;
  values: (number | null)[][];
  title: (value: number) => string;
};

const UNITS: [string, number][] = [
  ["GiB/s", 2 ** 30],
  ["MiB/s", 2 ** 20],
  ["KiB/s", 2 ** 10],
];

/** Bytes per second where any are known, else CPUs' worth of accesses; null if neither is known. */
export function trafficMatrix(pairs: NodeTraffic[], nodes: { id: number }[]): TrafficMatrix | null {
  const values = (of: (pair: Amount) => number | null) =>
    nodes.map(({ id: from }) =>
      nodes.map(({ id: to }) => {
        const pair = pairs.find(({ from_node, to_node }) => from_node === from && to_node === to);
        return pair === undefined ? null : of(pair);
      }),
    );
  const perSecond = values(({ bytes_per_s }) => bytes_per_s);
  const largest = Math.max(...perSecond.flat().map((value) => value ?? -1));
  if (largest >= 0) {
    const [unit, factor] = UNITS.find(([, size]) => largest >= size) ?? ["B/s", 1];
    return {
      unit,
      isBytes: true,
      values: perSecond.map((row) => row.map((value) => (value === null ? null : value / factor))),
      title: (value) => `${formatFigure(bytes(value * factor))}/s`,
    };
  }
  const cpus = values((pair) => pair.cpus);
  if (cpus.flat().every((value) => value === null)) return null;
  return { unit: "CPUs", isBytes: false, values: cpus, title: (value) => `accesses worth ${value.toFixed(2)} CPUs` };
}

/** At most three characters: `0`, `0.4`, `3.1`, `12`. */
export const short = (value: number): string =>
  value < 0.05 ? "0" : value < 9.95 ? value.toFixed(1) : String(Math.round(value));

/** Bytes per second to and from the memory of a NUMA node, over all CPUs; null where a part is unknown. */
export function memoryTraffic(pairs: NodeTraffic[], node: number): number | null {
  const found = pairs.filter(({ to_node }) => to_node === node).map(({ bytes_per_s }) => bytes_per_s);
  return found.length === 0 || found.includes(null) ? null : found.reduce<number>((sum, part) => sum + (part ?? 0), 0);
}

/** Busy processes that are not in the derived traffic, as their memory is unknown. */
export const missing = (entries: NumaEntry[]): number =>
  entries.filter(({ task }) => task.bytes_by_node === null && task.cpu_share > 0).length;
