import { type HeatBlock, NO_DATA } from "../../charts/heatBlock";
import { pooledMaximum } from "../../charts/heatPainter";
import { formatFigure, percent } from "../../lib/format";
import type { Row } from "./coreRows";

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

/** A cell's text at a time: `softirq 94 %`, or `no data`. */
export function cellText(block: HeatBlock | null, row: Row | undefined, timeMs: number, share: string): string {
  if (block === null || row === undefined) return "no data";
  const column = block.first + Math.floor((timeMs - block.startMs) / block.columnMs);
  const value = pooledMaximum(block, row.cpus, column, column);
  return value === NO_DATA ? "no data" : `${share} ${formatFigure(percent(value / 2))}`;
}
