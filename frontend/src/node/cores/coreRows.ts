import { parseCpuList } from "../../lib/cpulist";
import { bytes, formatFigure } from "../../lib/format";
import type { Cpu, Topology } from "../types";

/** A row of the heatmap: a CPU, or a group (folded: the maximum of its CPUs). */
export type Row =
  | { kind: "group"; key: string; label: string; depth: number; cpus: number[]; folded: boolean }
  | { kind: "cpu"; key: string; cpu: number; depth: number; cpus: [number] };

type Level = { name: string; of: (cpu: Cpu) => string; label: (cpu: Cpu) => string };

/** Number of CPUs above which the innermost groups start folded. */
const FOLD_ABOVE = 64;
/** Minimum number of groups for folding: fewer rows of maxima show too little. */
const FEWEST_GROUPS = 4;

function levels(topology: Topology): Level[] {
  const cacheOfCpu = new Map<number, Topology["caches"][number]>();
  const highest = Math.max(0, ...topology.caches.map((cache) => cache.level));
  for (const cache of topology.caches)
    if (cache.level === highest && highest >= 3) for (const cpu of parseCpuList(cache.cpus)) cacheOfCpu.set(cpu, cache);
  return [
    { name: "package", of: (cpu) => String(cpu.package), label: (cpu) => `package ${cpu.package ?? "?"}` },
    { name: "node", of: (cpu) => String(cpu.numa_node), label: (cpu) => `node ${cpu.numa_node ?? "?"}` },
    {
      name: "cache",
      of: (cpu) => cacheOfCpu.get(cpu.cpu)?.cpus ?? "",
      label: (cpu) => {
        const cache = cacheOfCpu.get(cpu.cpu);
        if (cache === undefined) return "";
        const size = cache.size_bytes === null ? "" : ` ${formatFigure(bytes(cache.size_bytes))}`;
        return `L${cache.level}${size.replace(/\.0+(?= )/, "")}`;
      },
    },
  ];
}

function byCore(a: Cpu, b: Cpu): number {
  return (a.core ?? 1e9) - (b.core ?? 1e9) || a.cpu - b.cpu;
}

function groupBy<T>(items: T[], keyOf: (item: T) => string): [string, T[]][] {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const key = keyOf(item);
    const group = groups.get(key);
    if (group === undefined) groups.set(key, [item]);
    else group.push(item);
  }
  return [...groups];
}

/**
 * The rows in topology order: package ▸ NUMA node ▸ last-level cache ▸ core ▸ CPU. A level that does not divide its
 * parent is named on the parent's row. Siblings of a core are adjacent. Offline CPUs form the last group.
 * folded: keys of the groups shown as one row.
 */
export function rowsByStructure(topology: Topology, folded: ReadonlySet<string>): Row[] {
  const online = topology.cpus.filter((cpu) => cpu.online).sort((a, b) => a.cpu - b.cpu);
  const offline = topology.cpus.filter((cpu) => !cpu.online).map((cpu) => cpu.cpu);
  const rows: Row[] = [];
  const all = levels(topology);

  const descend = (cpus: Cpu[], level: number, depth: number, path: string, labels: string[]): void => {
    const here = all[level];
    const first = cpus[0];
    if (first === undefined) return;
    const groups = here === undefined ? [] : groupBy(cpus, here.of);
    if (here !== undefined && groups.length === 1) {
      descend(cpus, level + 1, depth, path, [...labels, here.label(first)]);
      return;
    }
    const label = labels.filter((part) => part !== "").join(" · ");
    let inner = depth;
    if (label !== "") {
      const key = `${path}/${label}`;
      const isFolded = folded.has(key);
      rows.push({ kind: "group", key, label, depth, cpus: cpus.map((cpu) => cpu.cpu), folded: isFolded });
      if (isFolded) return;
      inner = depth + 1;
    }
    if (here === undefined) {
      for (const { cpu } of [...cpus].sort(byCore))
        rows.push({ kind: "cpu", key: `cpu:${cpu}`, cpu, depth: inner, cpus: [cpu] });
      return;
    }
    for (const [key, group] of groups) {
      const member = group[0];
      if (member !== undefined) descend(group, level + 1, inner, `${path}/${here.name}:${key}`, [here.label(member)]);
    }
  };
  descend(online, 0, 0, "", []);

  if (offline.length > 0) {
    const key = "/offline";
    const isFolded = folded.has(key);
    rows.push({ kind: "group", key, label: "offline", depth: 0, cpus: offline, folded: isFolded });
    if (!isFolded) for (const cpu of offline) rows.push({ kind: "cpu", key: `cpu:${cpu}`, cpu, depth: 1, cpus: [cpu] });
  }
  return rows;
}

/** Keys of the groups that contain CPUs directly. */
export function innermostGroups(rows: Row[]): string[] {
  return rows.flatMap((row, index) => (row.kind === "group" && rows[index + 1]?.kind !== "group" ? [row.key] : []));
}

/** Keys of the groups folded initially: on large machines the innermost ones. */
export function initiallyFolded(topology: Topology): ReadonlySet<string> {
  if (topology.cpus.length <= FOLD_ABOVE) return new Set();
  const groups = innermostGroups(rowsByStructure(topology, new Set()));
  return new Set(groups.length < FEWEST_GROUPS ? [] : groups);
}

/** One row per CPU, highest load first. level: a CPU's load in any unit. */
export function rowsByLoad(topology: Topology, level: (cpu: number) => number): Row[] {
  return topology.cpus
    .map(({ cpu }) => ({ cpu, level: level(cpu) }))
    .sort((a, b) => b.level - a.level || a.cpu - b.cpu)
    .map(({ cpu }): Row => ({ kind: "cpu", key: `cpu:${cpu}`, cpu, depth: 0, cpus: [cpu] }));
}

/** Row height in pixels; fewer CPUs get taller rows. */
export function rowHeight(rows: number): number {
  if (rows <= 3) return 44;
  if (rows <= 6) return 32;
  if (rows <= 24) return 22;
  return rows <= 80 ? 18 : 15;
}
