import { parseCpuList } from "../../lib/cpulist";
import { controllersOf } from "../controllers";
import type { Change, Inventory, Irq, Netdev } from "../types";

/** The CPUs that an interrupt targets: its effective affinity where reported, else the requested one. */
export function targetCpus(irq: Irq): number[] {
  return parseCpuList(irq.effective || irq.requested || "");
}

export type Owner = { who: string; detail: string };

const sameCpus = (a: string, b: string) => parseCpuList(a).join() === parseCpuList(b).join();

/**
 * The likely owner of an interrupt's affinity: as found if it is what it was before the first change on record, Coresteer
 * if its newest confirmed or unconfirmed change set it, else a running controller such as irqbalance, else the kernel's
 * default or unknown.
 */
export function ownerOf(irq: Irq, inventory: Inventory, online: number[], changes: Change[]): Owner {
  const key = `irq/${irq.irq}/affinity`;
  const applied = changes
    .filter(({ plan, applied_at }) => applied_at !== null && plan.actions.some((action) => action.key === key))
    .sort((a, b) => b.created_at.localeCompare(a.created_at));
  const last = applied.find((change) => change.state === "confirmed" || change.state === "unconfirmed");
  const original = applied.at(-1)?.plan.actions.find((action) => action.key === key)?.was;
  const controllers = controllersOf(key, inventory.controllers);
  if (original !== undefined && irq.requested !== null && sameCpus(original, irq.requested)) {
    const movers = controllers.length > 0 ? `; ${controllers.join(", ")} may move it` : "";
    return { who: "as found", detail: `as before the first change on record${movers}` };
  }
  const set = last?.plan.actions.find((action) => action.key === key)?.becomes;
  if (last !== undefined && set !== undefined && set === irq.requested) {
    const detail = last.state === "unconfirmed" ? "unconfirmed" : "confirmed";
    return { who: `Coresteer (${last.created_by})`, detail: `${detail}, set ${last.applied_at ?? last.created_at}` };
  }
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
