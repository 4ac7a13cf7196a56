import type { Band } from "../../charts/heatPainter";
import { formatCpuList } from "../../lib/cpulist";
import type { Column, Group } from "./groups";

/** A row of the heatmap: a CPU, or a group, which is an open group's heading or, folded, its CPUs' maximum. */
export type Row =
  | { kind: "cpu"; key: string; cpu: number; node: number | null; cpus: number[] }
  | { kind: "group"; key: string; group: Group; open: boolean; label: string; node: number | null; cpus: number[] };

/** A row's place. cpus: whose cells it shows, none for a heading; of: whose maximum it states. */
export type RowBand = Band & { of: readonly number[] };

/** Sizes in pixels. chips: most chips of a CPU. */
export type Density = {
  row: number;
  heading: number;
  label: number;
  load: number;
  font: number;
  chips: number;
  phone: boolean;
};

const NODE_GAP = 4;

const PHONE: Density = { row: 24, heading: 24, label: 98, load: 44, font: 11, chips: 1, phone: true };

/** Row heights and widths for a number of CPUs and columns; few CPUs get taller rows. */
export function densityOf(cpus: number, columns: number, phone: boolean): Density {
  if (phone) return PHONE;
  const row = cpus <= 16 ? 20 : cpus <= 32 ? 16 : 13;
  const wide = columns === 1 ? { label: 150, load: 132, chips: 2 } : { label: 84, load: 66, chips: 1 };
  return { row, heading: row < 20 ? 11 : 14, font: row < 20 ? 10 : 11, phone, ...wide };
}

const cpuRow = (cpu: number, node: number | null): Row => ({ kind: "cpu", key: `cpu:${cpu}`, cpu, node, cpus: [cpu] });

/** The rows of a column in the order of its groups. A group of one CPU has no heading. open: ids of open groups. */
export function rowsOf({ title, groups }: Column, open: ReadonlySet<number>): Row[] {
  const several = title.startsWith("packages");
  return groups.flatMap((group, index): Row[] => {
    const rows = group.cpus.map((cpu) => cpuRow(cpu, group.node));
    if (group.cpus.length === 1) return rows;
    const first = several && groups[index - 1]?.package !== group.package;
    const label = first && group.package !== null ? `package ${group.package} · ${group.name}` : group.name;
    const isOpen = open.has(group.id);
    const head = { kind: "group", key: `group:${group.id}`, group, open: isOpen, label, node: group.node } as const;
    return [{ ...head, cpus: group.cpus }, ...(isOpen ? rows : [])];
  });
}

/** CPU rows without groups, for example the hottest first. */
export function flatRows(cpus: number[]): Row[] {
  return cpus.map((cpu) => cpuRow(cpu, null));
}

/** The places of rows, with a gap between NUMA nodes; only a phone's headings have cells. */
export function bandsOf(rows: Row[], density: Density): { bands: RowBand[]; height: number } {
  let top = 0;
  const bands = rows.map((row, index): RowBand => {
    if (!density.phone && index > 0 && rows[index - 1]?.node !== row.node) top += NODE_GAP;
    const heading = row.kind === "group" && row.open;
    const height = heading ? density.heading : density.row;
    const band = { cpus: heading && !density.phone ? [] : row.cpus, of: row.cpus, top, height };
    top += height;
    return band;
  });
  return { bands, height: top };
}

/** The rows of each NUMA node, for the bar beside them; none for unknown nodes. */
export function nodeSpans(rows: Row[], bands: RowBand[]): { node: number; top: number; height: number }[] {
  const spans: { node: number; top: number; height: number }[] = [];
  rows.forEach(({ node }, index) => {
    const [band, last] = [bands[index], spans.at(-1)];
    if (node === null || band === undefined) return;
    if (last?.node === node) last.height = band.top + band.height - last.top;
    else spans.push({ node, top: band.top, height: band.height });
  });
  return spans;
}

/** The row that shows a CPU: its own, or its folded group's; -1 without one. */
export function rowOfCpu(rows: Row[], cpu: number): number {
  return rows.findIndex((row) => row.cpus.includes(cpu) && (row.kind === "cpu" || !row.open));
}

/** A row's name for screen readers and the tooltip. */
export function rowName(row: Row): string {
  return row.kind === "cpu" ? `CPU ${row.cpu}` : `${row.label}, maximum of CPUs ${formatCpuList(row.cpus)}`;
}
