import { type HeatBlock, NO_DATA } from "../../charts/heatBlock";
import type { Band } from "../../charts/heatPainter";
import { pooledMaximum } from "../../charts/heatPainter";
import { formatCpuList } from "../../lib/cpulist";
import { formatFigure, percent } from "../../lib/format";
import { type Row, rowHeight } from "./coreRows";

const HEADING_HEIGHT = 22;

/** The bands of rows in pixels; an unfolded group's heading has no cells. */
export function bandsOf(rows: Row[]): { bands: Band[]; height: number } {
  const tall = rowHeight(rows.filter((row) => row.kind === "cpu" || row.folded).length);
  let top = 0;
  const bands = rows.map((row): Band => {
    const heading = row.kind === "group" && !row.folded;
    const band = { cpus: heading ? [] : row.cpus, top, height: heading ? HEADING_HEIGHT : tall };
    top += band.height;
    return band;
  });
  return { bands, height: top };
}

export type Cell = { row: number; timeMs: number };

/** The cell that a key moves to; null for other keys. */
export function nextCell(key: string, from: Cell, rows: number, stepMs: number): Cell | null {
  const last = rows - 1;
  if (key === "ArrowDown") return { ...from, row: Math.min(last, from.row + 1) };
  if (key === "ArrowUp") return { ...from, row: Math.max(0, from.row - 1) };
  if (key === "ArrowLeft") return { row: Math.max(0, from.row), timeMs: from.timeMs - stepMs };
  if (key === "ArrowRight") return { row: Math.max(0, from.row), timeMs: from.timeMs + stepMs };
  if (key === "Home") return { ...from, row: 0 };
  if (key === "End") return { ...from, row: last };
  return null;
}

/** A row's name for screen readers and the tooltip. */
export function rowName(row: Row): string {
  return row.kind === "cpu" ? `CPU ${row.cpu}` : `${row.label}, maximum of CPUs ${formatCpuList(row.cpus)}`;
}

/** A cell's text at a time: `softirq 94 %`, or `no data`. */
export function cellText(block: HeatBlock | null, row: Row | undefined, timeMs: number, share: string): string {
  if (block === null || row === undefined) return "no data";
  const column = block.first + Math.floor((timeMs - block.startMs) / block.columnMs);
  const value = pooledMaximum(block, row.cpus, column, column);
  return value === NO_DATA ? "no data" : `${share} ${formatFigure(percent(value / 2))}`;
}
