import type { Schemas } from "../../api/client";
import { irqLabel, type RatesFrame } from "../../live/frames";
import type { Inventory } from "../types";

/** A row of the IRQ × CPU matrix. irq: null for architecture rows such as LOC. perS: by CPU number. total: null if unknown. */
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

/** Mean rates over the frames with interrupt counts, null without any. */
export function averageRates(frames: readonly RatesFrame[]): Rates | null {
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

/** The rates of a /matrix response. */
export function ratesOfMatrix(matrix: Schemas["Matrix"]): Rates | null {
  if (matrix.covered_s <= 0) return null;
  return new Map(
    matrix.rows.map((row) => [row.label, new Map(Object.entries(row.per_s).map(([cpu, rate]) => [Number(cpu), rate]))]),
  );
}

/** All interrupts of the node and all rows with a rate: interrupts before architecture rows, highest rate first. */
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
        locked: irq?.movable === false ? (irq.locked_reason ?? "The kernel manages its affinity.") : null,
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

/** Rows in a previous order, so that a live matrix does not jump; new rows follow. */
export function stableRowOrder(rows: MatrixRow[], order: string[]): MatrixRow[] {
  const place = new Map(order.map((label, index) => [label, index]));
  return [...rows].sort((a, b) => (place.get(a.label) ?? order.length) - (place.get(b.label) ?? order.length));
}

/** Names of the architecture rows of /proc/interrupts (arch/x86/kernel/irq.c, arch/arm64/kernel/smp.c). */
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
