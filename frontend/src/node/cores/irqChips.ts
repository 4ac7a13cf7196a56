import { targetCpus } from "../interrupts/irqAffinity";
import type { Inventory, Irq } from "../types";

/**
 * A short label for a NIC's queues, to follow its name: `-3` for rx-3 and tx-3, `-0…7` for adjacent queues, ` rx-3` for
 * one direction, ` ×3` for 3 others.
 */
export function queuesLabel(queues: string[]): string {
  const numbers = queueNumbers(queues);
  const [first, last] = [numbers[0], numbers.at(-1)];
  if (first === undefined || last === undefined) return "";
  if (queues.length === 1) return ` ${queues[0]}`;
  if (last - first !== numbers.length - 1) return ` ×${numbers.length}`;
  if (last > first) return `-${first}…${last}`;
  return `-${first}`;
}

/** The number of queues: rx-3 and tx-3 are one. */
export const countQueues = (irqs: readonly Irq[]): number =>
  new Set(irqs.flatMap(({ queues }) => queues.map((queue) => queue.replace(/^(rx|tx)-/, "")))).size;

/** The different numbers of queues, ascending. */
function queueNumbers(queues: string[]): number[] {
  const numbers = queues.map((queue) => Number(queue.replace(/^(rx|tx)-/, ""))).filter(Number.isInteger);
  return [...new Set(numbers)].sort((a, b) => a - b);
}

/** A chip on a CPU's row: the interrupts of one NIC that target the CPU. */
export type Chip = { netdev: string; queues: string; irqs: number[]; title: string };

/** An interrupt with more target CPUs than this has no chip. */
const MAX_CHIP_CPUS = 4;

/** The NIC interrupts that target each CPU, by CPU number, one chip per NIC. */
export function chipsByCpu(inventory: Inventory | null): Map<number, Chip[]> {
  const found = new Map<number, Map<string, Irq[]>>();
  for (const irq of inventory?.irqs ?? []) {
    if (irq.netdev === null) continue;
    const cpus = targetCpus(irq);
    if (cpus.length > MAX_CHIP_CPUS) continue;
    for (const cpu of cpus) {
      const netdevs = found.get(cpu) ?? new Map<string, Irq[]>();
      netdevs.set(irq.netdev, [...(netdevs.get(irq.netdev) ?? []), irq]);
      found.set(cpu, netdevs);
    }
  }
  return new Map([...found].map(([cpu, netdevs]) => [cpu, [...netdevs].map(([name, irqs]) => chipOf(name, irqs))]));
}

function chipOf(netdev: string, irqs: Irq[]): Chip {
  return {
    netdev,
    queues: queuesLabel(irqs.flatMap((irq) => irq.queues)),
    irqs: irqs.map(({ irq }) => irq),
    title: irqs.map(({ irq, name, queues }) => `IRQ ${irq} ${name}, ${queues.join(" ") || "no queue"}`).join("\n"),
  };
}
