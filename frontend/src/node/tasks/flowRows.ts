/** Rows of the network tasks: one for each process, one line for what has no hardware queue; search and order. */

import { groupBy } from "../../lib/groupBy";
import type { RxPath } from "./rxPath";

export const FLOW_COLUMNS = ["task", "sockets", "hop", "received", "sent"] as const;
export type FlowColumn = (typeof FLOW_COLUMNS)[number];
export type FlowSort = FlowColumn | `-${FlowColumn}`;

/** All RX placements of one process that have a queue, most traffic first. */
export type FlowRow = { key: string; task: RxPath["task"]; paths: RxPath[] };

/** RX placements without a queue or with an unknown CPU, for one reason. */
export type Collapsed = { reason: string; paths: RxPath[]; sockets: number; processes: number };

const processOf = ({ task }: RxPath) => `${task.pid} ${task.started_ticks}`;

/** RX placements by process, and those that have nothing to show by their reason, in the given order. */
export function groupFlows(paths: readonly RxPath[]): { rows: FlowRow[]; collapsed: Collapsed[] } {
  const isKnown = ({ placement }: RxPath) => placement.queue !== null && placement.cpu !== null;
  const rows = [...groupBy(paths.filter(isKnown), processOf)].map(([key, own]): FlowRow => {
    const [first] = own as [RxPath];
    return { key, task: first.task, paths: own };
  });
  const reasonOf = ({ why }: RxPath) => why.queue ?? why.irq ?? why.cpu ?? "";
  const unknown = groupBy(
    paths.filter((path) => !isKnown(path)),
    reasonOf,
  );
  const collapsed = [...unknown].map(([reason, own]) => ({
    reason,
    paths: own,
    sockets: own.reduce((sum, { placement }) => sum + placement.sockets, 0),
    processes: new Set(own.map(processOf)).size,
  }));
  return { rows, collapsed };
}

/** RX placements with the text in process, user, unit, cgroup, queue, `IRQ 31` or `CPU 4`, which is not `CPU 47`. */
export function searchFlows(paths: readonly RxPath[], text: string): readonly RxPath[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return paths;
  const pattern = new RegExp(`${escaped(wanted)}${/\d$/.test(wanted) ? "(?!\\d)" : ""}`);
  return paths.filter(({ task, placement: { netdev, queue, irq, cpu } }) =>
    [
      `${task.name} ${task.pid}`,
      ...[task.command, task.user, task.pod, task.unit, task.cgroup],
      `${netdev} ${queue ?? ""}`,
      irq === null ? null : `IRQ ${irq}`,
      cpu === null ? null : `CPU ${cpu}`,
      `CPU ${task.cpu}`,
    ].some((value) => value !== null && pattern.test(value.toLowerCase())),
  );
}

const escaped = (text: string) => text.replace(/[$()*+./?[\\\]^{|}]/g, "\\$&");

const DISTANCES = ["cpu", "core", "l2", "l3", "numa", "remote"];

/** The path of a process with the longest hop; the one with most traffic among equals. */
export function worstPath(paths: readonly RxPath[]): RxPath | undefined {
  const rank = ({ hop }: RxPath) => (hop === null ? -1 : DISTANCES.indexOf(hop.distance));
  return paths.reduce<RxPath | undefined>(
    (worst, path) => (worst === undefined || rank(path) > rank(worst) ? path : worst),
    undefined,
  );
}

type Sum = "sockets" | "rx_bytes_per_s" | "tx_bytes_per_s";
export const sumOf = (paths: readonly RxPath[], name: Sum): number =>
  paths.reduce((sum, { placement }) => sum + placement[name], 0);

const FIGURES: Record<Exclude<FlowColumn, "task">, (row: FlowRow) => number> = {
  sockets: ({ paths }) => sumOf(paths, "sockets"),
  hop: ({ paths }) => DISTANCES.indexOf(worstPath(paths)?.hop?.distance ?? ""),
  received: ({ paths }) => sumOf(paths, "rx_bytes_per_s"),
  sent: ({ paths }) => sumOf(paths, "tx_bytes_per_s"),
};
const byName = new Intl.Collator("en", { numeric: true });

/** Rows sorted by a column; undefined: in the given order. */
export function sortFlows(rows: FlowRow[], sort: FlowSort | undefined): FlowRow[] {
  if (sort === undefined) return rows;
  const direction = sort.startsWith("-") ? -1 : 1;
  const column = sort.replace("-", "") as FlowColumn;
  return rows.toSorted((a, b) => {
    const equal = byName.compare(a.task.name, b.task.name) || a.task.pid - b.task.pid;
    return column === "task" ? equal * direction : (FIGURES[column](a) - FIGURES[column](b)) * direction || equal;
  });
}
