import { formatCpuList, parseCpuList } from "../lib/cpulist";
import { formatCount } from "../lib/format";
import type { Topology } from "./types";

/** The cache of the highest level above 1 that covers a CPU. */
function lastCache(topology: Topology, cpu: number): Topology["caches"][number] | undefined {
  return cachesOf(topology, cpu)
    .filter((cache) => cache.level > 1)
    .at(-1);
}

/** The caches of each CPU, by topology: a large machine has more caches than CPUs, too many to read for each CPU. */
const cachesByCpu = new WeakMap<Topology, Map<number, Topology["caches"]>>();

/** The caches of a CPU, smallest level first. */
export function cachesOf(topology: Topology, cpu: number): Topology["caches"] {
  const known = cachesByCpu.get(topology);
  if (known !== undefined) return known.get(cpu) ?? [];
  const sorted = [...topology.caches].sort((a, b) => a.level - b.level || a.type.localeCompare(b.type));
  const index = new Map<number, Topology["caches"]>();
  for (const cache of sorted)
    for (const one of parseCpuList(cache.cpus)) index.set(one, [...(index.get(one) ?? []), cache]);
  cachesByCpu.set(topology, index);
  return index.get(cpu) ?? [];
}

/** A CPU's location: `package 0 · core 3 · NUMA node 0 · L3 of 4 CPUs`. */
export function cpuLocation(topology: Topology, cpu: number): string {
  const found = topology.cpus.find((candidate) => candidate.cpu === cpu);
  if (found === undefined) return "not a CPU of this node";
  if (!found.online) return "offline";
  const cache = lastCache(topology, cpu);
  const siblings = parseCpuList(found.siblings).filter((sibling) => sibling !== cpu);
  return [
    found.package === null ? "" : `package ${found.package}`,
    found.core === null ? "" : `core ${found.core}`,
    siblings.length === 0 ? "" : `shared with ${siblings.length === 1 ? "CPU" : "CPUs"} ${formatCpuList(siblings)}`,
    found.numa_node === null ? "" : `NUMA node ${found.numa_node}`,
    cache === undefined ? "" : `L${cache.level} of ${formatCount(parseCpuList(cache.cpus).length, "CPU")}`,
  ]
    .filter((part) => part !== "")
    .join(" · ");
}

/** CPUs isolated by isolcpus or nohz_full. */
export function isolatedCpus(topology: { isolated: string; nohz_full: string }): Set<number> {
  return new Set([...parseCpuList(topology.isolated), ...parseCpuList(topology.nohz_full)]);
}
