import { targetCpus } from "../interrupts/irqAffinity";
import type { Inventory } from "../types";

/** `rx-3` and `tx-3` of eth0 as `eth0-3`; a lone direction keeps its name. */
export function queueLabel(netdev: string, queues: string[]): string {
  const numbers = new Set(queues.map((queue) => queue.replace(/^(rx|tx)-/, "")));
  const both = queues.some((queue) => queue.startsWith("rx-")) && queues.some((queue) => queue.startsWith("tx-"));
  if (queues.length === 0) return netdev;
  if (both && numbers.size === 1) return `${netdev}-${[...numbers][0]}`;
  return queues.length === 1 ? `${netdev} ${queues[0]}` : `${netdev} ×${queues.length}`;
}

/** A chip on a CPU's line: an interrupt of a NIC that lands there. */
export type Chip = { label: string; irq: number; title: string };

/** An interrupt that may go to more CPUs than this has no chip: it would be on every line and say nothing. */
const CHIP_CPUS = 4;

/** By CPU number, the NICs' interrupts that land on it. */
export function chipsByCpu(inventory: Inventory | null): Map<number, Chip[]> {
  const chips = new Map<number, Chip[]>();
  for (const irq of inventory?.irqs ?? []) {
    if (irq.netdev === null) continue;
    const cpus = targetCpus(irq);
    if (cpus.length > CHIP_CPUS) continue;
    const chip = {
      label: queueLabel(irq.netdev, irq.queues),
      irq: irq.irq,
      title: `IRQ ${irq.irq} ${irq.name}, ${irq.queues.join(" ") || "no queue"}`,
    };
    for (const cpu of cpus) chips.set(cpu, [...(chips.get(cpu) ?? []), chip]);
  }
  return chips;
}
