import { targetCpus } from "../interrupts/irqAffinity";
import type { Inventory } from "../types";

/** A short label for queues: `eth0-3` for rx-3 and tx-3, `eth0 rx-3` for one direction, `eth0 ×3` for others. */
export function queueLabel(netdev: string, queues: string[]): string {
  const numbers = new Set(queues.map((queue) => queue.replace(/^(rx|tx)-/, "")));
  const both = queues.some((queue) => queue.startsWith("rx-")) && queues.some((queue) => queue.startsWith("tx-"));
  if (queues.length === 0) return netdev;
  if (both && numbers.size === 1) return `${netdev}-${[...numbers][0]}`;
  return queues.length === 1 ? `${netdev} ${queues[0]}` : `${netdev} ×${queues.length}`;
}

/** A chip on a CPU's row: a NIC interrupt that targets the CPU. */
export type Chip = { label: string; irq: number; title: string };

/** An interrupt with more target CPUs than this has no chip. */
const MAX_CHIP_CPUS = 4;

/** The NIC interrupts that target each CPU, by CPU number. */
export function chipsByCpu(inventory: Inventory | null): Map<number, Chip[]> {
  const chips = new Map<number, Chip[]>();
  for (const irq of inventory?.irqs ?? []) {
    if (irq.netdev === null) continue;
    const cpus = targetCpus(irq);
    if (cpus.length > MAX_CHIP_CPUS) continue;
    const chip = {
      label: queueLabel(irq.netdev, irq.queues),
      irq: irq.irq,
      title: `IRQ ${irq.irq} ${irq.name}, ${irq.queues.join(" ") || "no queue"}`,
    };
    for (const cpu of cpus) chips.set(cpu, [...(chips.get(cpu) ?? []), chip]);
  }
  return chips;
}
