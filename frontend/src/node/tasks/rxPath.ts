import type { Schemas } from "../../api/client";
import { parseCpuList } from "../../lib/cpulist";
import type { Inventory, Netdev, Topology } from "../types";

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

/**
 * One RX placement of a task with its hop, from the CPU of the protocol work: with RFS the task's own, else the softirq
 * CPU, which polls. nodes.softirq: of the former. why: by column, the reason for an unknown value.
 */
export type RxPath = {
  key: string;
  task: NetTask;
  placement: RxPlacement;
  hop: Hop | null;
  nodes: { nic: number | null; softirq: number | null; task: number | null };
  /** Whether the CPU that polls and the NIC are on different NUMA nodes. */
  offNode: boolean;
  /** What brought the packets there: `RSS table entry 17`, `flow rule 3`; empty where unknown. */
  mechanism: string;
  why: { queue?: string; irq?: string; cpu?: string; hop?: string };
};

const HOW: Record<string, string> = {
  rss: "computed from the NIC's RSS hash and indirection table",
  rule: "selected by one of the NIC's flow rules",
  rps: "computed from the flow hash and the queue's RPS CPUs",
  queue: "the device has a single receive queue",
  softirq: "virtual device: the CPU that handles its packets",
};

/** The method by which the softirq CPU was determined. */
export const methodText = (how: string | null): string => (how === null ? "" : (HOW[how] ?? how));

/** Whether a flow rule, in ethtool's words, matches a flow. */
function matches(rule: string, { protocol, local, local_port, peer, peer_port }: NetTask["flows"][number]): boolean {
  const words = rule.split(" ");
  const wanted = { "src-ip": peer, "dst-ip": local, "src-port": `${peer_port}`, "dst-port": `${local_port}` };
  return (
    words[1] === `${protocol}${local.includes(":") ? 6 : 4}` &&
    Object.entries(wanted).every(([name, value]) => !words.includes(name) || words[words.indexOf(name) + 1] === value)
  );
}

/** `RSS table entries 3 and 17` of the heaviest flows, at most three. */
function entriesText(flows: NetTask["flows"]): string {
  const entries = [...new Set(flows.flatMap(({ rss_entry }) => rss_entry ?? []))];
  if (entries.length === 0) return "RSS table";
  const shown = entries.slice(0, 3).sort((a, b) => a - b);
  const more = entries.length > shown.length ? " and others" : "";
  return `RSS table ${entries.length === 1 ? "entry" : "entries"} ${shown.join(", ")}${more}`;
}

/** What brought a task's packets to their queue and CPU; empty where unknown. */
function mechanismOf(task: NetTask, placement: RxPlacement, inventory: Inventory | null): string {
  const { netdev, queue, how, rfs } = placement;
  const flows = task.flows.filter((flow) => flow.netdev === netdev && flow.queue === queue);
  const rules = inventory?.netdevs.find(({ name }) => name === netdev)?.flow_rules?.rules ?? [];
  const used = rules.filter(({ value }) => value !== "" && flows.some((flow) => matches(value, flow)));
  const by =
    how === "rule"
      ? `flow rule ${used.map(({ location }) => location).join(", ")}`.trim()
      : how === "rss"
        ? entriesText(flows)
        : how === "rps"
          ? "RPS"
          : "";
  return [by, rfs && `RFS: CPU ${task.cpu}, where ${task.name} reads it`].filter(Boolean).join(" · ");
}

function whyNoQueue({ rfs }: RxPlacement, netdev: Netdev | undefined): string {
  if (rfs && netdev?.params.ntuple === "on")
    return "with RFS and ntuple on, the kernel may add rules to the NIC (accelerated RFS), which most drivers list nowhere.";
  if (netdev?.flow_rules?.rules.some(({ value }) => value === ""))
    return "a flow rule of the NIC selects an RSS context, or is of a kind that Coresteer does not know.";
  const unreported =
    netdev?.driver === "mlx5_core" ? ", or mlx5_core does not report whether its hash is symmetric" : "";
  return `the NIC's RSS key or indirection table could not be read, or its hash is one that Coresteer does not compute${unreported}.`;
}

function whyUnknown(placement: RxPlacement, inventory: Inventory | null): RxPath["why"] {
  const netdev = inventory?.netdevs.find((candidate) => candidate.name === placement.netdev);
  const virtual = netdev?.virtual === true;
  const why: RxPath["why"] = {};
  if (placement.netdev === "") why.queue = "The network device of these connections is unknown.";
  else if (placement.queue === null)
    why.queue = virtual
      ? "A virtual device has no hardware queue."
      : `The queue is unknown: ${whyNoQueue(placement, netdev)}`;
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
        const protocol = placement.rfs ? task.cpu : cpu;
        const hop = protocol === null ? null : hopBetween(places, protocol, task.cpu);
        const nodes = { nic, softirq: nodeOf(protocol), task: nodeOf(task.cpu) };
        const polling = nodeOf(cpu);
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
          offNode: nic !== null && polling !== null && nic !== polling,
          mechanism: mechanismOf(task, placement, inventory),
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
