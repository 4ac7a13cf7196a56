import { parseCpuList } from "../../lib/cpulist";
import { controllersOf } from "../controllers";
import type { Change, Inventory, Irq, Netdev } from "../types";

/** The CPUs that an interrupt targets: its effective affinity where reported, else the requested one. */
export function targetCpus(irq: Irq): number[] {
  return parseCpuList(irq.effective || irq.requested || "");
}

export type Owner = { who: string; detail: string };

/**
 * The likely owner of an interrupt's affinity: Coresteer if its newest confirmed or unconfirmed change set the current
 * value, else a running controller such as irqbalance, else the kernel's default or unknown.
 */
export function ownerOf(irq: Irq, inventory: Inventory, online: number[], changes: Change[]): Owner {
  const key = `irq/${irq.irq}/affinity`;
  const last = changes
    .filter((change) => change.plan.actions.some((action) => action.key === key))
    .filter((change) => change.state === "confirmed" || change.state === "unconfirmed")
    .sort((a, b) => b.created_at.localeCompare(a.created_at))[0];
  const set = last?.plan.actions.find((action) => action.key === key)?.becomes;
  if (last !== undefined && set !== undefined && set === irq.requested) {
    const detail = last.state === "unconfirmed" ? "unconfirmed" : "confirmed";
    return { who: `Coresteer (${last.created_by})`, detail: `${detail}, set ${last.applied_at ?? last.created_at}` };
  }
  const controllers = controllersOf(key, inventory.controllers);
  if (controllers.length > 0) return { who: controllers.join(", "), detail: "active on this node, may move it" };
  const requested = parseCpuList(irq.requested ?? "");
  if (requested.length > 0 && online.every((cpu) => requested.includes(cpu)))
    return { who: "kernel default", detail: "any CPU" };
  return { who: "unknown", detail: "set by the driver, the firmware or a person" };
}

/** The queues that an interrupt serves. */
export function queuesOf(irq: Irq, inventory: Inventory): Netdev["queues"] {
  const netdev = inventory.netdevs.find((candidate) => candidate.name === irq.netdev);
  return netdev?.queues.filter((queue) => queue.irq === irq.irq) ?? [];
}
