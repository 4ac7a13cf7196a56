import { formatCpuList, parseCpuList } from "../../lib/cpulist";
import { bytes, formatCount, formatFigure } from "../../lib/format";
import type { Cpu, Topology } from "../types";

/** CPUs that share a last-level cache, or a part of many that do: what folds into one row. id: its place. */
export type Group = {
  id: number;
  /** `L3 2`, or its CPUs where no L3 is known; detail: its size, or the part's CPUs. */
  name: string;
  detail: string;
  node: number | null;
  package: number | null;
  cpus: number[];
};

/** Groups that share one time axis. */
export type Column = { title: string; detail: string; cpus: number[]; groups: Group[] };

/** Number of CPUs from which groups start folded. */
export const FOLD_FROM = 96;
/** Most CPUs in a group: more are divided, so that an open group remains readable. */
const LARGEST_GROUP = 48;
const LARGEST_FOLDED_GROUP = 16;
/** CPUs per column of a machine that does not have two packages. */
const CPUS_PER_COLUMN = 32;

type Cache = Topology["caches"][number];

/** The last-level cache of each CPU, if it is an L3 or L4, with its number among those caches. */
function lastCaches(topology: Topology): Map<number, { cache: Cache; number: number }> {
  const level = Math.max(3, ...topology.caches.map((cache) => cache.level));
  const found = topology.caches
    .filter((cache) => cache.level === level)
    .map((cache) => ({ cache, cpus: parseCpuList(cache.cpus) }))
    .sort((a, b) => (a.cpus[0] ?? 0) - (b.cpus[0] ?? 0));
  return new Map(found.flatMap(({ cache, cpus }, number) => cpus.map((cpu) => [cpu, { cache, number }])));
}

function groupBy(cpus: Cpu[], keyOf: (cpu: Cpu) => number | null | undefined): Cpu[][] {
  const groups = new Map<number, Cpu[]>();
  for (const cpu of cpus) {
    const key = keyOf(cpu) ?? Number.POSITIVE_INFINITY;
    groups.set(key, [...(groups.get(key) ?? []), cpu]);
  }
  return [...groups].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, group]) => group);
}

const byCore = (a: Cpu, b: Cpu) => (a.core ?? 1e9) - (b.core ?? 1e9) || a.cpu - b.cpu;

/** The online CPUs by package, NUMA node and last-level cache; siblings of a core are adjacent. */
export function groupsOf(topology: Topology): Group[] {
  const caches = lastCaches(topology);
  const online = topology.cpus.filter((cpu) => cpu.online).sort((a, b) => a.cpu - b.cpu);
  const largest = online.length < FOLD_FROM ? LARGEST_GROUP : LARGEST_FOLDED_GROUP;
  const groups = groupBy(online, (cpu) => cpu.package)
    .flatMap((inPackage) => groupBy(inPackage, (cpu) => cpu.numa_node))
    .flatMap((inNode) => groupBy(inNode, (cpu) => caches.get(cpu.cpu)?.number))
    .flatMap((inCache) => parts(inCache.sort(byCore), largest));
  return groups.map(({ members, divided }, id) => {
    const [first, cpus] = [members[0], members.map(({ cpu }) => cpu)];
    const cache = caches.get(first?.cpu ?? -1);
    const list = `CPUs ${formatCpuList(cpus)}`;
    return {
      ...{ id, cpus, node: first?.numa_node ?? null, package: first?.package ?? null },
      name: cache === undefined ? list : `L${cache.cache.level} ${cache.number}`,
      detail: cache === undefined ? "" : divided ? list : sizeOf(cache.cache),
    };
  });
}

function sizeOf({ size_bytes }: Cache): string {
  return size_bytes === null ? "" : formatFigure(bytes(size_bytes)).replace(/\.0+(?=\s)/, "");
}

/** Equal parts of at most a number of CPUs. */
function parts(cpus: Cpu[], largest: number): { members: Cpu[]; divided: boolean }[] {
  const count = Math.ceil(cpus.length / largest);
  const each = Math.ceil(cpus.length / count);
  return Array.from({ length: count }, (_, part) => ({
    members: cpus.slice(part * each, (part + 1) * each),
    divided: count > 1,
  }));
}

/** The columns of the heatmap: two packages side by side; else one column per 32 CPUs, at most two. */
export function columnsOf(groups: Group[]): Column[] {
  const total = groups.reduce((sum, group) => sum + group.cpus.length, 0);
  const packages = new Set(groups.map((group) => group.package));
  if (packages.size === 2) return [...packages].map((id) => column(groups.filter((group) => group.package === id)));
  if (total <= CPUS_PER_COLUMN || groups.length === 1) return [column(groups)];
  let [split, before] = [0, 0];
  while (split < groups.length - 1 && before + (groups[split]?.cpus.length ?? 0) / 2 < total / 2)
    before += groups[split++]?.cpus.length ?? 0;
  return [column(groups.slice(0, split)), column(groups.slice(split))];
}

function column(groups: Group[]): Column {
  const cpus = groups.flatMap((group) => group.cpus);
  const listed = (word: string, of: (group: Group) => number | null) => {
    const ids = [...new Set(groups.map(of))].filter((id) => id !== null);
    if (ids.length === 0) return "";
    return ids.length === 1 ? `${word} ${ids[0]}` : `${word}s ${ids.length > 4 ? formatCpuList(ids) : ids.join(", ")}`;
  };
  const title = listed("package", (group) => group.package);
  const detail = [listed("node", (group) => group.node), formatCount(cpus.length, "CPU")];
  return { title, detail: detail.filter((part) => part !== "").join(" · "), cpus, groups };
}
