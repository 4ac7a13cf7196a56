import type { Schemas } from "../../api/client";
import { formatCpuList, parseCpuList } from "../../lib/cpulist";
import { irqLabel, type RatesFrame } from "../../live/frames";

export type Inventory = NonNullable<Schemas["Node"]["inventory"]>;
export type Irq = Inventory["irqs"][number];
export type Netdev = Inventory["netdevs"][number];
export type Change = Schemas["Change"];

/** A row of the IRQ × CPU matrix. irq: its number, null for architecture rows such as LOC. perS: by CPU number; total: null unknown. */
export type MatrixRow = {
  label: string;
  irq: number | null;
  name: string;
  netdev: string | null;
  locked: string | null;
  perS: Map<number, number>;
  total: number | null;
};

/** Interrupts per second by row label and CPU number. */
export type Rates = Map<string, Map<number, number>>;

/** The mean rates over the frames that tell of interrupts, null when none does. */
export function averageRates(frames: RatesFrame[]): Rates | null {
  const byLabel: Rates = new Map();
  const seconds = frames.reduce((sum, frame) => (frame.irqs === null ? sum : sum + frame.duration_s), 0);
  if (seconds <= 0) return null;
  const labels = new Map<number, string>();
  for (const { irqs } of frames) {
    if (irqs === null) continue;
    for (let index = 0; index < irqs.ids.length; index++) {
      const id = irqs.ids[index] ?? 0;
      const label = labels.get(id) ?? irqLabel(id);
      labels.set(id, label);
      let row = byLabel.get(label);
      if (row === undefined) {
        row = new Map();
        byLabel.set(label, row);
      }
      const cpu = irqs.cpus[index] ?? 0;
      row.set(cpu, (row.get(cpu) ?? 0) + (irqs.counts[index] ?? 0) / seconds);
    }
  }
  return byLabel;
}

/** The rates of a /matrix answer in the same form. */
export function answeredRates(matrix: Schemas["Matrix"]): Rates | null {
  if (matrix.covered_s <= 0) return null;
  return new Map(
    matrix.rows.map((row) => [row.label, new Map(Object.entries(row.per_s).map(([cpu, rate]) => [Number(cpu), rate]))]),
  );
}

/** Every interrupt the node has and every row that moved: interrupts before architecture rows, busiest first. */
export function matrixRows(inventory: Inventory | null, rates: Rates | null): MatrixRow[] {
  const known = new Map((inventory?.irqs ?? []).map((irq) => [String(irq.irq), irq]));
  const labels = new Set([...known.keys(), ...(rates?.keys() ?? [])]);
  return [...labels]
    .map((label): MatrixRow => {
      const irq = known.get(label);
      const perS = rates?.get(label) ?? new Map<number, number>();
      return {
        label,
        irq: /^\d+$/.test(label) ? Number(label) : null,
        name: irq?.name ?? ARCHITECTURE_ROWS[label] ?? "",
        netdev: irq?.netdev ?? null,
        locked: irq?.movable === false ? (irq.locked_reason ?? "The kernel keeps its affinity to itself.") : null,
        perS,
        total: rates === null ? null : [...perS.values()].reduce((sum, rate) => sum + rate, 0),
      };
    })
    .sort(byRate);
}

function byRate(a: MatrixRow, b: MatrixRow): number {
  if ((a.irq === null) !== (b.irq === null)) return a.irq === null ? 1 : -1;
  return (b.total ?? 0) - (a.total ?? 0) || a.label.localeCompare(b.label, "en", { numeric: true });
}

/** Rows in a kept order, so that a live matrix does not jump; rows the order does not know follow it. */
export function inOrder(rows: MatrixRow[], order: string[]): MatrixRow[] {
  const place = new Map(order.map((label, index) => [label, index]));
  return [...rows].sort((a, b) => (place.get(a.label) ?? order.length) - (place.get(b.label) ?? order.length));
}

/** What /proc/interrupts calls its rows that are no device's (arch/x86/kernel/irq.c, arch/arm64/kernel/smp.c). */
const ARCHITECTURE_ROWS: Record<string, string> = {
  NMI: "non-maskable interrupts",
  LOC: "local timer",
  SPU: "spurious",
  PMI: "performance monitoring",
  IWI: "IRQ work",
  RTR: "APIC ICR read retries",
  RES: "rescheduling",
  CAL: "function calls",
  TLB: "TLB shootdowns",
  TRM: "thermal events",
  THR: "threshold APIC",
  DFR: "deferred error APIC",
  MCE: "machine check exceptions",
  MCP: "machine check polls",
  HYP: "hypervisor callbacks",
  HRE: "Hyper-V re-enlightenment",
  HVS: "Hyper-V timer",
  PIN: "posted interrupts",
  NPI: "nested posted interrupts",
  PIW: "posted interrupt wake-ups",
  ERR: "APIC errors",
  MIS: "APIC errors, missed",
};

/** The CPUs an interrupt goes to: the effective affinity where the kernel tells it, else the requested one. */
export function landsOn(irq: Irq): number[] {
  return parseCpuList(irq.effective || irq.requested || "");
}

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
    const cpus = landsOn(irq);
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

export type Owner = { who: string; detail: string };

/**
 * Who set an interrupt's affinity, as far as can be told: Coresteer when the newest of its changes to it that
 * still stands has set the present value, else a controller that runs, else the kernel's default or somebody.
 */
export function ownerOf(irq: Irq, inventory: Inventory, online: number[], changes: Change[]): Owner {
  const key = `irq/${irq.irq}/affinity`;
  const last = changes
    .filter((change) => change.plan.actions.some((action) => action.key === key))
    .filter((change) => change.state === "confirmed" || change.state === "unconfirmed")
    .sort((a, b) => b.created_at.localeCompare(a.created_at))[0];
  const set = last?.plan.actions.find((action) => action.key === key)?.becomes;
  if (last !== undefined && set !== undefined && set === irq.requested) {
    const detail = last.state === "unconfirmed" ? "not yet kept" : "kept";
    return { who: `Coresteer (${last.created_by})`, detail: `${detail}, set ${last.applied_at ?? last.created_at}` };
  }
  if (inventory.controllers.length > 0)
    return { who: inventory.controllers.join(", "), detail: "runs here and may move it" };
  const requested = parseCpuList(irq.requested ?? "");
  if (requested.length > 0 && online.every((cpu) => requested.includes(cpu)))
    return { who: "kernel default", detail: "any CPU" };
  return { who: "unknown", detail: "set by the driver, the firmware or a person" };
}

/** The netdev's queues that an interrupt serves. */
export function queuesOf(irq: Irq, inventory: Inventory): Netdev["queues"] {
  const netdev = inventory.netdevs.find((candidate) => candidate.name === irq.netdev);
  return netdev?.queues.filter((queue) => queue.irq === irq.irq) ?? [];
}

/** CPUs kept free of other work by isolcpus or nohz_full. */
export function isolatedCpus(topology: { isolated: string; nohz_full: string }): Set<number> {
  return new Set([...parseCpuList(topology.isolated), ...parseCpuList(topology.nohz_full)]);
}

/** `CPU 3` or `CPUs 0-3`. */
export function cpusInWords(cpus: number[]): string {
  return `${cpus.length === 1 ? "CPU" : "CPUs"} ${formatCpuList(cpus)}`;
}
