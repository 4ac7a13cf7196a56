/** Explains why a CPU is loaded: one sentence, and the chain from the task over its queue to the memory. */

import { parseCpuList } from "../../lib/cpulist";
import { bitRate, formatCount, formatFigure, percent, perSecond } from "../../lib/format";
import { groupBy } from "../../lib/groupBy";
import { countQueues } from "../cores/irqChips";
import { targetCpus } from "../interrupts/irqAffinity";
import type { Rates } from "../interrupts/matrixRows";
import type { RxPath } from "../tasks/rxPath";
import type { Inventory, Irq, Topology } from "../types";

type Task = { pid: number; name: string; cpu: number; cpu_share: number };

/** What is known of a node now. busy, softirq: percent by CPU number, null where unknown; softirq includes interrupts. */
export type Facts = {
  topology: Topology;
  inventory: Inventory | null;
  paths: readonly RxPath[];
  tasks: readonly Task[];
  rates: Rates | null;
  busy: readonly (number | null)[];
  softirq: readonly (number | null)[];
};

/** The explained CPU, and the interrupt if one is selected. */
export type Focus = { cpu: number; irq: number | null };

/** A step of the chain. why: the reason where the text is unknown. cut: the link to the next step leaves a cache or a NUMA node. */
export type Step = {
  name: "task" | "socket" | "queue" | "IRQ" | "core" | "cache" | "NUMA";
  text: string | null;
  detail?: string | undefined;
  figure?: string | undefined;
  sel?: string | undefined;
  why?: string | undefined;
  bad?: boolean;
  cut?: boolean;
};

/** more: further flows of the CPU. hidden: connections without a hardware queue. */
export type Why = { lead: string; rest: string; steps: Step[]; more: number; hidden: number };

/** `the hottest of 64`, of the hottest CPU; it stays the hottest for some seconds while another is about as hot. */
export function rankText(busy: Facts["busy"], cpu: number): string {
  const known = busy.filter((value) => value !== null).map(Math.round);
  const isFirst = Math.max(...known) <= Math.round(busy[cpu] ?? 0);
  return `${isFirst ? "the hottest" : "among the hottest"} of ${known.length}`;
}

const rateAt = (rates: Rates | null, irq: number, cpu: number) => rates?.get(String(irq))?.get(cpu) ?? 0;

/** The CPU on which an interrupt occurs most, else its first target; null for an unknown one. */
function cpuOfIrq({ inventory, rates }: Facts, number: number): number | null {
  const cells = [...(rates?.get(String(number)) ?? [])].sort((a, b) => b[1] - a[1]);
  const irq = inventory?.irqs.find((candidate) => candidate.irq === number);
  return cells[0]?.[0] ?? (irq === undefined ? null : (targetCpus(irq)[0] ?? null));
}

/** What a selection of the page is about; null if it is no CPU, IRQ or network task. */
export function selectedFocus(facts: Facts, sel: string | undefined): Focus | null {
  const [kind, text] = (sel ?? "").split(":");
  const number = Number(text);
  if (kind === "cpu") return facts.topology.cpus.some(({ cpu }) => cpu === number) ? { cpu: number, irq: null } : null;
  if (kind === "irq") {
    const cpu = cpuOfIrq(facts, number);
    return cpu === null ? null : { cpu, irq: number };
  }
  const path = kind === "task" ? facts.paths.find(({ task }) => task.pid === number) : undefined;
  return path === undefined ? null : { cpu: path.placement.cpu ?? path.task.cpu, irq: path.placement.irq };
}

/** The interrupts that occur on a CPU, or only target it while no rates are known; the most frequent first. */
function irqsAt({ inventory, rates }: Facts, cpu: number): Irq[] {
  const isHere = (irq: Irq) =>
    rates === null ? targetCpus(irq).length === 1 && targetCpus(irq)[0] === cpu : rateAt(rates, irq.irq, cpu) > 0;
  return (inventory?.irqs ?? [])
    .filter(isHere)
    .sort((a, b) => rateAt(rates, b.irq, cpu) - rateAt(rates, a.irq, cpu) || a.irq - b.irq);
}

/** Percentage points of a CPU that an interrupt causes: its part, by occurrences, of the softirq time. Null if unknown. */
function pointsOf(facts: Facts, irq: number, here: readonly Irq[], cpu: number): number | null {
  const softirq = facts.softirq[cpu] ?? null;
  const total = here.reduce((sum, one) => sum + rateAt(facts.rates, one.irq, cpu), 0);
  return softirq === null || total <= 0 ? null : (softirq * rateAt(facts.rates, irq, cpu)) / total;
}

/** `All 8 queues of ens5 interrupt CPU 47.` */
function leadOf({ inventory }: Facts, here: readonly Irq[], cpu: number): string {
  const isQueue = (irq: Irq) => irq.netdev !== null && irq.queues.length > 0;
  const byNetdev = groupBy(here.filter(isQueue), ({ netdev }) => netdev);
  const [first] = [...byNetdev].sort(([, a], [, b]) => b.length - a.length);
  if (first === undefined) return `No network queue interrupts CPU ${cpu}.`;
  const [netdev, irqs] = first;
  const total = countQueues(inventory?.irqs.filter((irq) => irq.netdev === netdev) ?? []);
  const count = countQueues(irqs);
  if (total === 1) return `The only queue of ${netdev} interrupts CPU ${cpu}.`;
  if (count === total) return `${total === 2 ? "Both" : `All ${total}`} queues of ${netdev} interrupt CPU ${cpu}.`;
  return `${count} of ${total} queues of ${netdev} interrupt${count === 1 ? "s" : ""} CPU ${cpu}.`;
}

const READS = {
  cpu: "on the same CPU",
  core: "on the same core",
  l2: "within the same L2 cache",
  l3: "within the same L3 cache",
  numa: "behind another cache",
  remote: "on another NUMA node",
} as const;

/** `IRQ 31 causes 51 of its 92 points; envoy reads the data on another NUMA node.` */
function restOf(facts: Facts, cpu: number, irq: Irq | undefined, points: number | null, path: RxPath | undefined) {
  const busy = facts.busy[cpu] ?? null;
  if (busy === null) return "Its load is not known.";
  const all = Math.round(busy);
  const caused = points === null ? 0 : Math.round(points);
  const [task] = tasksAt(facts, cpu);
  const parts: string[] = [];
  if (irq !== undefined && caused > 0) parts.push(`IRQ ${irq.irq} causes ${caused} of its ${all} points`);
  else if (task !== undefined && all > 0)
    parts.push(`It is ${all} % busy, mostly with processes such as ${task.name} ${task.pid}`);
  else parts.push(`It is ${all} % busy`);
  if (path?.placement.rfs)
    parts.push(`RFS passes its packets on to CPU ${path.task.cpu}, where ${path.task.name} reads them`);
  else if (path?.hop) parts.push(`${path.task.name} reads the data ${READS[path.hop.distance]}`);
  return `${parts.join("; ")}.`;
}

const tasksAt = ({ tasks }: Facts, cpu: number) =>
  tasks.filter((task) => task.cpu === cpu).sort((a, b) => b.cpu_share - a.cpu_share);

/** The last-level cache of a CPU as `L3 2`, numbered as the kernel lists them; null if unknown. */
function cacheName({ caches }: Topology, cpu: number): string | null {
  const level = Math.max(0, ...caches.map((cache) => cache.level));
  const last = caches.filter((cache) => cache.level === level && cache.type !== "Instruction");
  const index = last.findIndex((cache) => parseCpuList(cache.cpus).includes(cpu));
  return level < 2 || index === -1 ? null : `L${level} ${index}`;
}

const bytesOf = ({ placement }: RxPath) => placement.rx_bytes_per_s + placement.tx_bytes_per_s;

/** The share, in percent, of a CPU's bytes whose task runs on another NUMA node; null without any. */
function wrongNode(paths: readonly RxPath[]): number | null {
  const total = paths.reduce((sum, path) => sum + bytesOf(path), 0);
  const wrong = paths.filter(({ hop }) => hop?.crosses === "numa").reduce((sum, path) => sum + bytesOf(path), 0);
  return total > 0 ? (100 * wrong) / total : null;
}

function coreStep({ topology, busy }: Facts, cpu: number, isHot: boolean): Step {
  const found = topology.cpus.find((candidate) => candidate.cpu === cpu);
  const siblings = parseCpuList(found?.siblings ?? "").filter((sibling) => sibling !== cpu);
  const load = busy[cpu] ?? null;
  return {
    name: "core",
    text: `CPU ${cpu}`,
    detail: [cacheName(topology, cpu), siblings.length > 0 && `sibling CPU ${siblings.join(", ")}`]
      .filter(Boolean)
      .join(" · "),
    figure: load === null ? undefined : formatFigure(percent(load)),
    sel: `cpu:${cpu}`,
    bad: isHot,
  };
}

const NO_NODES = "The kernel reports no NUMA nodes.";

/** The steps from the CPU to the memory of the task that reads the data; without one, to the CPU's own NUMA node. */
function memorySteps({ topology }: Facts, cpu: number, path: RxPath | undefined, here: readonly RxPath[]): Step[] {
  if (path === undefined) {
    const own = topology.cpus.find((candidate) => candidate.cpu === cpu)?.numa_node ?? null;
    return [{ name: "NUMA", text: own === null ? null : `node ${own}`, why: NO_NODES }];
  }
  const [from, to] = [cacheName(topology, cpu), cacheName(topology, path.task.cpu)];
  const crosses = path.hop?.crosses ?? null;
  const wrong = wrongNode(here);
  const { softirq, task } = path.nodes;
  return [
    {
      name: "cache",
      text: from === null || to === null ? null : from === to ? from : `${from} → ${to}`,
      figure: path.hop ? (crosses === null ? path.hop.label : `crosses ${from?.split(" ")[0] ?? "cache"}`) : undefined,
      why: path.why.hop ?? "The kernel reports no caches.",
      bad: crosses !== null,
      cut: crosses === "numa",
    },
    {
      name: "NUMA",
      text:
        softirq === null || task === null ? null : softirq === task ? `node ${task}` : `node ${softirq} → node ${task}`,
      // of all flows of the CPU, while the chain shows one
      figure:
        wrong === null || topology.numa_nodes.length < 2
          ? undefined
          : `${wrong > 0 && crosses !== "numa" ? "other flows: " : ""}${Math.round(wrong)} % wrong-node`,
      why: NO_NODES,
      bad: wrong !== null && wrong > 0,
    },
  ];
}

/** The steps from the task to the interrupt: those that exist. A step of a receiving task may be unknown, with its reason. */
function packetSteps(facts: Facts, cpu: number, irq: Irq | undefined, path: RxPath | undefined): Step[] {
  const steps: Step[] = [];
  const [top] = tasksAt(facts, cpu);
  if (path !== undefined) {
    const node = path.nodes.task;
    steps.push(
      {
        name: "task",
        text: `${path.task.name} ${path.task.pid}`,
        detail: `CPU ${path.task.cpu}${node === null ? "" : `, node ${node}`}`,
        figure: formatCount(path.task.threads, "thread"),
      },
      {
        name: "socket",
        text: formatCount(path.placement.sockets, "socket"),
        figure: formatFigure(bitRate(bytesOf(path))),
      },
    );
  } else if (top !== undefined)
    steps.push({
      name: "task",
      text: `${top.name} ${top.pid}`,
      detail: "runs here",
      figure: formatFigure(percent(100 * top.cpu_share)),
    });
  const queue = path?.placement.queue ?? irq?.queues.find((name) => name.startsWith("rx-")) ?? null;
  const netdev = path?.placement.netdev || irq?.netdev;
  if (path !== undefined || (queue !== null && netdev))
    steps.push({
      name: "queue",
      text: queue === null || !netdev ? null : `${netdev} ${queue}`,
      detail: path?.mechanism || undefined,
      sel: netdev ? `nic:${netdev}` : undefined,
      why: path?.why.queue,
    });
  const rate = irq === undefined || facts.rates === null ? null : rateAt(facts.rates, irq.irq, cpu);
  if (path !== undefined || irq !== undefined)
    steps.push({
      name: "IRQ",
      text: (irq?.irq ?? path?.placement.irq)?.toString() ?? null,
      detail: irq?.name,
      figure: rate === null ? undefined : formatFigure(perSecond(rate)),
      sel: irq && `irq:${irq.irq}`,
      why: path?.why.irq,
    });
  return steps;
}

/** Why a CPU is loaded, or what a selected interrupt does there. isHot: whether the CPU needs attention. */
export function explain(facts: Facts, focus: Focus, isHot: boolean): Why {
  const { cpu } = focus;
  const here = irqsAt(facts, cpu);
  const paths = facts.paths.filter(({ placement }) => placement.cpu === cpu);
  const irq =
    focus.irq === null
      ? (here.find(({ netdev, queues }) => netdev !== null && queues.length > 0) ?? here[0])
      : facts.inventory?.irqs.find((one) => one.irq === focus.irq);
  const path =
    paths.find(({ placement }) => placement.irq !== null && placement.irq === irq?.irq) ??
    (focus.irq === null ? paths[0] : undefined);
  const points = irq === undefined ? null : pointsOf(facts, irq.irq, here, cpu);
  const virtual = new Set(facts.inventory?.netdevs.filter((netdev) => netdev.virtual).map(({ name }) => name));
  const hidden = facts.paths.filter(({ placement }) => placement.cpu !== cpu && virtual.has(placement.netdev));
  return {
    lead: leadOf(facts, here, cpu),
    rest: restOf(facts, cpu, irq, points, path),
    steps: [
      ...packetSteps(facts, cpu, irq, path),
      { ...coreStep(facts, cpu, isHot), cut: (path?.hop?.crosses ?? null) !== null },
      ...memorySteps(facts, cpu, path, paths),
    ],
    more: Math.max(0, paths.length - 1),
    hidden: hidden.reduce((sum, { placement }) => sum + placement.sockets, 0),
  };
}
