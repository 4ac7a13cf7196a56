import type { Schemas } from "../api/client";
import { parseCpuList } from "../lib/cpulist";
import type { Inventory } from "./irqs";
import type { Topology } from "./rows";

export type NetTask = Schemas["NodeFlows"]["tasks"][number];
export type RxPlacement = NetTask["rx_placements"][number];

/** How near two CPUs are, the nearest first. */
export type Nearness = "cpu" | "core" | "l2" | "l3" | "numa" | "remote";

/**
 * Two CPUs' place to each other in words. wrong: what the hop costs; null where it stays within a cache; `cache` where
 * they share none above the core's own, `numa` where memory is on the other side. An unknown place is null as a whole.
 */
export type Hop = { nearness: Nearness; words: string; wrong: "cache" | "numa" | null };

type Place = { numa: number | null; siblings: ReadonlySet<number>; caches: { level: number; id: number }[] };

/** Where every online CPU is, looked up once a topology. told: whether the machine tells of its caches. */
export type Places = { of: Map<number, Place>; told: boolean };

/** Reads a topology for hopBetween. */
export function placesOf(topology: Topology): Places {
  const of = new Map<number, Place>();
  for (const cpu of topology.cpus)
    if (cpu.online) of.set(cpu.cpu, { numa: cpu.numa_node, siblings: new Set(parseCpuList(cpu.siblings)), caches: [] });
  const data = topology.caches.filter((cache) => cache.type !== "Instruction").sort((a, b) => a.level - b.level);
  for (const [id, { level, cpus }] of data.entries())
    for (const cpu of parseCpuList(cpus)) of.get(cpu)?.caches.push({ level, id });
  return { of, told: data.length > 0 };
}

/** Where the CPU that handles a task's packets is, seen from the CPU that the task runs on. */
export function hopBetween({ of, told }: Places, softirq: number, task: number): Hop | null {
  const [a, b] = [of.get(softirq), of.get(task)];
  if (a === undefined || b === undefined) return null;
  if (softirq === task) return { nearness: "cpu", words: "same CPU", wrong: null };
  if (a.siblings.has(task)) return { nearness: "core", words: "same core", wrong: null };
  const others = new Set(b.caches.map(({ id }) => id));
  const smallest = a.caches.find(({ id }) => others.has(id))?.level;
  if (smallest !== undefined && smallest <= 2) return { nearness: "l2", words: `share L${smallest}`, wrong: null };
  if (smallest !== undefined) {
    const hasL2 = a.caches.some(({ level }) => level === 2);
    return { nearness: "l3", words: `share L${smallest}${hasL2 ? ", no L2" : ""}`, wrong: null };
  }
  if (a.numa !== null && b.numa !== null && a.numa !== b.numa)
    return { nearness: "remote", words: "other NUMA node", wrong: "numa" };
  // Without a word on caches it is not known that they share none.
  return told ? { nearness: "numa", words: "share no cache", wrong: "cache" } : null;
}

/** One line of the chain: a task's packets that arrive by one way. why: by column, why something is not known. */
export type Link = {
  key: string;
  task: NetTask;
  placement: RxPlacement;
  hop: Hop | null;
  nodes: { nic: number | null; softirq: number | null; task: number | null };
  /** The interrupt is handled on another NUMA node than its device's. */
  offNode: boolean;
  why: { queue?: string; irq?: string; cpu?: string; hop?: string };
};

const HOW: Record<string, string> = {
  rss: "found by the NIC's hash and table",
  rps: "found by the hash over the queue's RPS CPUs",
  queue: "the device has one receive queue",
  softirq: "a virtual device: where its packets are handled",
};

/** How the CPU was found, in words. */
export const howFound = (how: string | null): string => (how === null ? "" : (HOW[how] ?? how));

function whyUnknown(placement: RxPlacement, inventory: Inventory | null): Link["why"] {
  const netdev = inventory?.netdevs.find((candidate) => candidate.name === placement.netdev);
  const virtual = netdev?.virtual === true;
  const why: Link["why"] = {};
  if (placement.netdev === "") why.queue = "The network device of these connections is not known.";
  else if (placement.queue === null)
    why.queue = virtual
      ? "A virtual device has no hardware queue that its packets come through."
      : "The NIC's hash key and table could not be read, so its queue is not known.";
  if (placement.irq === null)
    why.irq = virtual
      ? "A virtual device has no interrupt of its own."
      : placement.queue === null
        ? "Without the queue its interrupt is not known."
        : "The kernel does not tell which interrupt this queue has.";
  if (placement.cpu === null)
    why.cpu = virtual
      ? "Packets of a virtual device are handled on the CPU that sent them or that RPS chose, which is not told."
      : placement.irq === null
        ? "Without the interrupt it is not known where its packets are handled."
        : "The interrupt may go to several CPUs, and none has taken it yet.";
  return why;
}

/** Every way on which packets reach a task, with its hops; the ways with most traffic first. */
export function chainOf(tasks: NetTask[], places: Places, inventory: Inventory | null): Link[] {
  const nodeOf = (cpu: number | null) => (cpu === null ? null : (places.of.get(cpu)?.numa ?? null));
  return tasks
    .flatMap((task) =>
      task.rx_placements.map((placement): Link => {
        const { netdev, queue, irq, cpu } = placement;
        const nic = inventory?.netdevs.find((candidate) => candidate.name === netdev)?.numa_node ?? null;
        const hop = cpu === null ? null : hopBetween(places, cpu, task.cpu);
        const nodes = { nic, softirq: nodeOf(cpu), task: nodeOf(task.cpu) };
        const why = whyUnknown(placement, inventory);
        if (hop === null)
          why.hop =
            cpu === null ? "Without the CPU the way is not known." : "It is not known which caches the two CPUs share.";
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

/** Both directions of a placement, bytes a second. */
export const bytesOf = (placement: RxPlacement): number => placement.rx_bytes_per_s + placement.tx_bytes_per_s;

/** Links in a kept order, so that lines do not change places under the eye; new ones follow. */
export function inKeptOrder(links: Link[], order: string[]): Link[] {
  const place = new Map(order.map((key, index) => [key, index]));
  return [...links].sort((a, b) => (place.get(a.key) ?? order.length) - (place.get(b.key) ?? order.length));
}

/** The received bytes by what their hop is, as shares of all of them; null when nothing is received. */
export function localityOf(links: Link[]): { near: number; wrong: number; unknown: number } | null {
  const sum = (of: Link[]) => of.reduce((total, { placement }) => total + placement.rx_bytes_per_s, 0);
  const all = sum(links);
  if (all <= 0) return null;
  const unknown = sum(links.filter(({ hop }) => hop === null)) / all;
  const wrong = sum(links.filter(({ hop }) => hop !== null && hop.wrong !== null)) / all;
  return { near: 1 - wrong - unknown, wrong, unknown };
}
