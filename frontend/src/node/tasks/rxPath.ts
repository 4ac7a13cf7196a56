import type { Schemas } from "../../api/client";
import { parseCpuList } from "../../lib/cpulist";
import type { Inventory, Topology } from "../types";

export type NetTask = Schemas["NodeFlows"]["tasks"][number];
export type RxPlacement = NetTask["rx_placements"][number];

/** Distance of two CPUs, smallest first. */
type Distance = "cpu" | "core" | "l2" | "l3" | "numa" | "remote";

/** Distance between two CPUs. crosses: `cache` if they share none, `numa` if they are on different NUMA nodes, else null. */
export type Hop = { distance: Distance; label: string; crosses: "cache" | "numa" | null };

type Place = { numa: number | null; siblings: ReadonlySet<number>; caches: { level: number; id: number }[] };

/** NUMA node, siblings and caches of every online CPU. cachesKnown: whether the kernel reports caches. */
export type TopologyIndex = { of: Map<number, Place>; cachesKnown: boolean };

/** Indexes a topology for hopBetween. */
export function indexTopology(topology: Topology): TopologyIndex {
  const of = new Map<number, Place>();
  for (const cpu of topology.cpus)
    if (cpu.online) of.set(cpu.cpu, { numa: cpu.numa_node, siblings: new Set(parseCpuList(cpu.siblings)), caches: [] });
  const data = topology.caches.filter((cache) => cache.type !== "Instruction").sort((a, b) => a.level - b.level);
  for (const [id, { level, cpus }] of data.entries())
    for (const cpu of parseCpuList(cpus)) of.get(cpu)?.caches.push({ level, id });
  return { of, cachesKnown: data.length > 0 };
}

/** The hop from the softirq CPU to the task's CPU; null where the distance is unknown. */
export function hopBetween({ of, cachesKnown }: TopologyIndex, softirq: number, task: number): Hop | null {
  const [a, b] = [of.get(softirq), of.get(task)];
  if (a === undefined || b === undefined) return null;
  if (softirq === task) return { distance: "cpu", label: "same CPU", crosses: null };
  if (a.siblings.has(task)) return { distance: "core", label: "same core", crosses: null };
  const others = new Set(b.caches.map(({ id }) => id));
  const smallest = a.caches.find(({ id }) => others.has(id))?.level;
  if (smallest !== undefined && smallest <= 2) return { distance: "l2", label: `share L${smallest}`, crosses: null };
  if (smallest !== undefined) {
    const hasL2 = a.caches.some(({ level }) => level === 2);
    return { distance: "l3", label: `share L${smallest}${hasL2 ? ", no L2" : ""}`, crosses: null };
  }
  if (a.numa !== null && b.numa !== null && a.numa !== b.numa)
    return { distance: "remote", label: "other NUMA node", crosses: "numa" };
  // Without cache data a shared cache cannot be ruled out.
  return cachesKnown ? { distance: "numa", label: "share no cache", crosses: "cache" } : null;
}

/** One RX placement of a task with its hop. why: by column, the reason for an unknown value. */
export type RxPath = {
  key: string;
  task: NetTask;
  placement: RxPlacement;
  hop: Hop | null;
  nodes: { nic: number | null; softirq: number | null; task: number | null };
  /** Whether the softirq CPU and the NIC are on different NUMA nodes. */
  offNode: boolean;
  why: { queue?: string; irq?: string; cpu?: string; hop?: string };
};

const HOW: Record<string, string> = {
  rss: "computed from the NIC's RSS hash and indirection table",
  rps: "computed from the flow hash and the queue's RPS CPUs",
  queue: "the device has a single receive queue",
  softirq: "virtual device: the CPU that handles its packets",
};

/** The method by which the softirq CPU was determined. */
export const methodText = (how: string | null): string => (how === null ? "" : (HOW[how] ?? how));

function whyUnknown(placement: RxPlacement, inventory: Inventory | null): RxPath["why"] {
  const netdev = inventory?.netdevs.find((candidate) => candidate.name === placement.netdev);
  const virtual = netdev?.virtual === true;
  const why: RxPath["why"] = {};
  if (placement.netdev === "") why.queue = "The network device of these connections is unknown.";
  else if (placement.queue === null)
    why.queue = virtual
      ? "A virtual device has no hardware queue."
      : "The queue is unknown: the NIC's RSS key or indirection table could not be read.";
  if (placement.irq === null)
    why.irq = virtual
      ? "A virtual device has no interrupt."
      : placement.queue === null
        ? "The IRQ is unknown because the queue is."
        : "The kernel does not report the IRQ of this queue.";
  if (placement.cpu === null)
    why.cpu = virtual
      ? "A virtual device's packets are handled on the sending CPU or an RPS CPU, which is not reported."
      : placement.irq === null
        ? "The softirq CPU is unknown because the IRQ is."
        : "The IRQ may target several CPUs and has not fired yet.";
  return why;
}

/** The RX placements of all tasks with their hops, most traffic first. */
export function rxPathsOf(tasks: NetTask[], places: TopologyIndex, inventory: Inventory | null): RxPath[] {
  const nodeOf = (cpu: number | null) => (cpu === null ? null : (places.of.get(cpu)?.numa ?? null));
  return tasks
    .flatMap((task) =>
      task.rx_placements.map((placement): RxPath => {
        const { netdev, queue, irq, cpu } = placement;
        const nic = inventory?.netdevs.find((candidate) => candidate.name === netdev)?.numa_node ?? null;
        const hop = cpu === null ? null : hopBetween(places, cpu, task.cpu);
        const nodes = { nic, softirq: nodeOf(cpu), task: nodeOf(task.cpu) };
        const why = whyUnknown(placement, inventory);
        if (hop === null)
          why.hop =
            cpu === null
              ? "The hop is unknown because the softirq CPU is."
              : "It is unknown which caches the two CPUs share.";
        return {
          key: [task.pid, task.started_ticks, netdev, queue, irq, cpu].join(" "),
          task,
          placement,
          hop,
          nodes,
          offNode: nodes.nic !== null && nodes.softirq !== null && nodes.nic !== nodes.softirq,
          why,
        };
      }),
    )
    .sort((a, b) => bytesOf(b.placement) - bytesOf(a.placement) || a.key.localeCompare(b.key));
}

/** Received and sent bytes per second of a placement. */
const bytesOf = (placement: RxPlacement): number => placement.rx_bytes_per_s + placement.tx_bytes_per_s;

/** Received bytes by locality, as shares from 0 to 1; null when nothing is received. */
export function localityShares(links: RxPath[]): { local: number; remote: number; unknown: number } | null {
  const sum = (of: RxPath[]) => of.reduce((total, { placement }) => total + placement.rx_bytes_per_s, 0);
  const all = sum(links);
  if (all <= 0) return null;
  const unknown = sum(links.filter(({ hop }) => hop === null)) / all;
  const remote = sum(links.filter(({ hop }) => hop !== null && hop.crosses !== null)) / all;
  return { local: 1 - remote - unknown, remote, unknown };
}
