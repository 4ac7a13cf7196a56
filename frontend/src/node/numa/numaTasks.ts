import type { Schemas } from "../../api/client";
import { NO_CPU_TIME } from "../../api/constants";
import { bytes, formatFigure } from "../../lib/format";

export type NodeMemory = Schemas["NodeNuma"]["nodes"][number];
export type NumaEntry = Schemas["NumaTaskEntry"];
export type NumaTask = NumaEntry["task"];

export const TASK_COLUMNS = ["name", "cpus", "memory", "remote", "time", "contention"] as const;
export type TaskColumn = (typeof TASK_COLUMNS)[number];
export type TaskSort = TaskColumn | `-${TaskColumn}`;

const COLOURS = [
  "var(--rx)",
  "var(--softirq)",
  "var(--ok)",
  "var(--tx)",
  "var(--faint)",
  "color-mix(in srgb, var(--tx), var(--softirq))",
  "var(--user)",
  "color-mix(in srgb, var(--ok), var(--softirq))",
];

/** The colour of a NUMA node; the ninth has that of the first. */
export const nodeColour = (node: number): string => COLOURS[node % COLOURS.length] as string;

/** The selection of a process in the URL, `task:812:5551`: a PID alone may name another process later. */
export const taskSelection = ({ pid, started_ticks }: Pick<NumaTask, "pid" | "started_ticks">): string =>
  `task:${pid}:${started_ticks}`;

/** A part of a whole by NUMA node. share: 0 to 1. */
export type NodeShare = { node: number; amount: number; share: number };

function sharesOf(amounts: Record<string, number>): NodeShare[] {
  const total = Object.values(amounts).reduce((sum, amount) => sum + amount, 0);
  return Object.entries(amounts)
    .filter(([, amount]) => amount > 0)
    .map(([node, amount]) => ({ node: Number(node), amount, share: amount / total }))
    .sort((a, b) => a.node - b.node);
}

/** The bytes of a process by NUMA node; null where unknown. */
export const memoryShares = ({ bytes_by_node }: Pick<NumaTask, "bytes_by_node">): NodeShare[] | null =>
  bytes_by_node === null ? null : sharesOf(bytes_by_node);

/** Why the memory of a process by NUMA node is unknown, or what is predicted from it. */
export function whyUnknown({ unknown, bytes_by_node, cpu_share }: NumaTask): string {
  if (bytes_by_node !== null && cpu_share === 0) return NO_CPU_TIME;
  return unknown ?? "The agent has not read its memory by node yet.";
}

/** Why the contention of one process is unknown where that of others is not. */
export const CONTENTION_UNKNOWN = "The agent has not counted its memory traffic: it counts the busiest processes.";

/** A node with less CPU time of a process is not named as one where it runs. */
const MIN_CPU_SHARE = 0.05;

/** The NUMA nodes where a process runs, with its CPU time in CPUs; empty where unknown. */
export const runsOn = ({ cpu_nodes }: Pick<NumaTask, "cpu_nodes">): NodeShare[] =>
  sharesOf(cpu_nodes).filter(({ share }) => share >= MIN_CPU_SHARE);

/** Shares by node in words: `93 % on node 0, 7 % on node 1`. */
export const sharesText = (shares: NodeShare[]): string =>
  shares.map(({ node, share }) => `${Math.round(100 * share)} % on node ${node}`).join(", ");

/** Entries whose process has the text in its name, PID, command, user, unit or cgroup. */
export function filterEntries(entries: NumaEntry[], text: string): NumaEntry[] {
  const wanted = text.trim().toLowerCase();
  if (wanted === "") return entries;
  return entries.filter(({ task: { name, pid, command, user, unit, cgroup } }) =>
    [name, String(pid), command, user, unit, cgroup].some((value) => value?.toLowerCase().includes(wanted)),
  );
}

const FIGURES: Record<Exclude<TaskColumn, "name">, (entry: NumaEntry) => number | null> = {
  cpus: ({ task }) => task.cpu_share,
  memory: ({ task }) => task.rss_bytes,
  remote: ({ remote_share }) => remote_share,
  time: ({ run_time }) => run_time,
  contention: ({ contention }) => contention,
};
const byName = new Intl.Collator("en", { numeric: true });

/** Entries sorted by a column, unknown figures last in both directions; undefined: in the given order. */
export function sortEntries(entries: NumaEntry[], sort: TaskSort | undefined): NumaEntry[] {
  if (sort === undefined) return entries;
  const direction = sort.startsWith("-") ? -1 : 1;
  const column = sort.replace("-", "") as TaskColumn;
  return entries.toSorted((a, b) => {
    const equal = byName.compare(a.task.name, b.task.name) || a.task.pid - b.task.pid;
    if (column === "name") return equal * direction;
    const [x, y] = [FIGURES[column](a), FIGURES[column](b)];
    if (x === null || y === null) return Number(x === null) - Number(y === null) || equal;
    return (x - y) * direction || equal;
  });
}

/** A kind of a NUMA node's memory. bytes: null where unknown. share: of all memory. */
export type MemoryPart = { kind: "anon" | "file" | "other" | "unknown" | "free"; bytes: number; share: number };

/**
 * A NUMA node's memory by kind, free memory last; null if its size is unknown. other: the kernel's. unknown: the rest
 * if one of the kinds is unknown.
 */
export function memoryParts(memory: NodeMemory): MemoryPart[] | null {
  const { total_bytes: total, anon_bytes: anon, file_bytes: file, free_bytes: free } = memory;
  if (total === null || total === 0) return null;
  const rest = Math.max(0, total - (anon ?? 0) - (file ?? 0) - (free ?? 0));
  const isKnown = anon !== null && file !== null && free !== null;
  const parts: [MemoryPart["kind"], number | null][] = [
    ["anon", anon],
    ["file", file],
    [isKnown ? "other" : "unknown", rest],
    ["free", free],
  ];
  return parts.flatMap(([kind, bytes]) => (bytes ? [{ kind, bytes, share: bytes / total }] : []));
}

/** What the firmware states of a node's memory (HMAT): `Reads: 128 GiB/s, 76 ns. Writes: 64 GiB/s.` */
export function performanceText(memory: NodeMemory | undefined): string {
  const part = (name: string, perSecond: number | null | undefined, ns: number | null | undefined) => {
    const known = [perSecond == null ? "" : `${formatFigure(bytes(perSecond))}/s`, ns == null ? "" : `${ns} ns`];
    const text = known.filter((each) => each !== "").join(", ");
    return text === "" ? [] : [`${name}: ${text}.`];
  };
  return [
    ...part("Reads", memory?.bandwidth_bytes_per_s, memory?.latency_ns),
    ...part("Writes", memory?.write_bandwidth_bytes_per_s, memory?.write_latency_ns),
  ].join(" ");
}

/** Distances between NUMA nodes: a row per node in the order of the nodes; null if the kernel does not report them. */
export function distanceRows(nodes: { id: number; distances: number[] }[]): number[][] | null {
  const rows = nodes.map(({ distances }) => distances);
  return rows.length > 0 && rows.every((row) => row.length === nodes.length) ? rows : null;
}

/** `×1.37` */
export const factor = (value: number): string => `×${value.toFixed(2)}`;
