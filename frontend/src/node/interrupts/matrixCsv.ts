import { csv, withUnit } from "../../lib/csv";
import type { MatrixRow } from "./matrixRows";

/** The matrix as CSV, a row for each interrupt and a column for each CPU; a CPU without interrupts has 0. */
export function matrixCsv(rows: MatrixRow[], cpus: number[]): string {
  const head = ["IRQ", "name", "NIC", ...cpus.map((cpu) => withUnit(`CPU ${cpu}`, "1/s"))];
  const lines = rows.map(({ label, name, netdev, perS, total }) => {
    return [label, name, netdev, ...cpus.map((cpu) => (total === null ? null : (perS.get(cpu) ?? 0)))];
  });
  return csv([head, ...lines]);
}
