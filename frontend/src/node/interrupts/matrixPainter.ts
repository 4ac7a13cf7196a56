import { type Colours, hatchPattern } from "../../charts/canvas";
import { cividis } from "../../lib/cividis";
import { formatFigure, perSecond } from "../../lib/format";
import { groupsOf } from "../cores/groups";
import type { Topology } from "../types";
import type { MatrixRow } from "./matrixRows";

export const ROW_HEIGHT = 18;
export const HEAD_HEIGHT = 32;
/** Below this width of the matrix, as on a phone, rows have no names. */
const NAMED_FROM = 520;
/** Least width of a column of one CPU; narrower ones become columns of an L3. */
const LEAST_COLUMN = 2;
const RATE_WIDTH = 70;

/** Width in pixels of the row labels in a matrix of a width. */
export function labelWidth(width: number): number {
  return width < NAMED_FROM ? 140 : 300;
}

/** A column of the matrix: a CPU, or those of an L3. starts: the NUMA node that begins at this column. */
export type MatrixColumn = { name: string; mark: string; cpus: number[]; starts: number | null };

/** The columns by NUMA node: CPUs, or L3 groups if CPUs would be too narrow in a matrix of that width. */
export function columnsOf(topology: Topology, width: number): MatrixColumn[] {
  const areNarrow = width > 0 && (width - labelWidth(width)) / Math.max(1, topology.cpus.length) < LEAST_COLUMN;
  const parts = areNarrow
    ? groupsOf(topology).map(({ id, name, cpus, node }) => ({ name, mark: String(id), cpus, node }))
    : topology.cpus.map(({ cpu, numa_node: node }) => ({ name: `CPU ${cpu}`, mark: String(cpu), cpus: [cpu], node }));
  const sorted = parts.sort((a, b) => (a.node ?? 1e9) - (b.node ?? 1e9) || Number(a.mark) - Number(b.mark));
  return sorted.map(({ name, mark, cpus, node }, index) => ({
    ...{ name, mark, cpus },
    starts: index === 0 || sorted[index - 1]?.node !== node ? node : null,
  }));
}

/** A row's rate in a column. */
export function columnRate(row: MatrixRow, { cpus }: MatrixColumn): number {
  return cpus.reduce((sum, cpu) => sum + (row.perS.get(cpu) ?? 0), 0);
}

/** The scale's end: the smallest power of ten ≥ the largest cell, at least 100/s. */
export function scaleEnd(rows: MatrixRow[]): number {
  let most = 100;
  for (const row of rows) for (const rate of row.perS.values()) most = Math.max(most, rate);
  return 10 ** Math.ceil(Math.log10(most) - 1e-9);
}

/** A rate's position on the logarithmic scale, 0 to 1; 0 for no interrupts. */
export function scalePosition(rate: number, end: number): number {
  return Math.min(1, Math.log10(1 + Math.max(0, rate)) / Math.log10(1 + end));
}

export type MatrixPicture = {
  rows: MatrixRow[];
  columns: MatrixColumn[];
  width: number;
  height: number;
  scrollTop: number;
  selected: number | null;
  at: { row: number; column: number } | null;
};

/** Draws the header, the labels, the rates and the visible cells. */
export function paintMatrix(context: CanvasRenderingContext2D, colours: Colours, picture: MatrixPicture): void {
  const { rows, columns, width, height, scrollTop, selected, at } = picture;
  const left = labelWidth(width);
  const each = (width - left) / Math.max(1, columns.length);
  const end = scaleEnd(rows);
  const font = colours.get("--font");
  const unknown = hatchPattern(context, colours.get("--line-strong"));
  context.textBaseline = "middle";
  const first = Math.max(0, Math.floor(scrollTop / ROW_HEIGHT));
  const last = Math.min(rows.length - 1, Math.ceil((scrollTop + height) / ROW_HEIGHT));
  for (let index = first; index <= last; index++) {
    const row = rows[index];
    if (row === undefined) continue;
    const y = HEAD_HEIGHT + index * ROW_HEIGHT - scrollTop;
    if (selected !== null && row.irq === selected) {
      context.fillStyle = colours.get("--accent-weak");
      context.fillRect(0, y, left - 4, ROW_HEIGHT);
    }
    label(context, colours, font, row, y + ROW_HEIGHT / 2, left);
    context.fillStyle = row.total === null ? unknown : `rgb(${cividis(0).join(" ")})`;
    context.fillRect(left, y, width - left, ROW_HEIGHT - 1);
    columns.forEach((of, column) => {
      const rate = columnRate(row, of);
      if (rate <= 0) return;
      context.fillStyle = `rgb(${cividis(scalePosition(rate, end)).join(" ")})`;
      context.fillRect(left + column * each, y, Math.max(1, each), ROW_HEIGHT - 1);
    });
  }
  header(context, colours, font, columns, width, each);
  context.fillStyle = colours.get("--panel");
  columns.forEach(({ starts }, column) => {
    if (starts !== null && column > 0) context.fillRect(left + column * each - 1, HEAD_HEIGHT, 2, height);
  });
  if (at !== null) {
    context.strokeStyle = colours.get("--text");
    context.lineWidth = 2;
    const y = HEAD_HEIGHT + at.row * ROW_HEIGHT - scrollTop;
    context.strokeRect(left + at.column * each, y, Math.max(4, each), ROW_HEIGHT - 1);
  }
}

function label(
  context: CanvasRenderingContext2D,
  colours: Colours,
  font: string,
  row: MatrixRow,
  y: number,
  left: number,
): void {
  context.save();
  context.beginPath();
  context.rect(0, y - ROW_HEIGHT / 2, left - RATE_WIDTH - 8, ROW_HEIGHT);
  context.clip();
  context.textAlign = "right";
  context.font = `12px ${colours.get("--mono")}`;
  context.fillStyle = colours.get(row.irq === null ? "--muted" : "--text");
  context.fillText(row.label, 46, y);
  if (row.locked !== null) lock(context, colours.get("--muted"), 52, y);
  context.textAlign = "left";
  context.font = `12px ${font}`;
  context.fillStyle = colours.get("--muted");
  if (left > 3 * RATE_WIDTH) context.fillText(row.name, 66, y);
  context.restore();
  context.textAlign = "right";
  context.font = `12px ${font}`;
  context.fillStyle = colours.get(row.total ? "--text" : "--muted");
  context.fillText(formatFigure(perSecond(row.total)), left - 10, y);
}

/** A padlock 8 pixels wide: a managed interrupt. */
function lock(context: CanvasRenderingContext2D, colour: string, x: number, y: number): void {
  context.fillStyle = colour;
  context.strokeStyle = colour;
  context.lineWidth = 1.5;
  context.fillRect(x, y - 1, 8, 6);
  context.beginPath();
  context.arc(x + 4, y - 1, 2.5, Math.PI, 0);
  context.stroke();
}

function header(
  context: CanvasRenderingContext2D,
  colours: Colours,
  font: string,
  columns: MatrixColumn[],
  width: number,
  each: number,
): void {
  const left = labelWidth(width);
  context.fillStyle = colours.get("--panel");
  context.fillRect(0, 0, width, HEAD_HEIGHT);
  context.fillStyle = colours.get("--muted");
  context.font = `11px ${font}`;
  context.textAlign = "right";
  context.fillText("IRQ", 46, 23);
  context.fillText("rate", left - 10, 23);
  if (width < NAMED_FROM)
    context.fillText(columns[0]?.name.startsWith("L3") ? "node / L3" : "node / CPU", left - 10, 8);
  context.textAlign = "left";
  context.fillText(width >= NAMED_FROM ? "name" : "", 66, 23);
  const every = Math.max(1, 2 ** Math.ceil(Math.log2(26 / each)));
  let inNode = 0;
  columns.forEach(({ mark, starts }, column) => {
    const x = left + column * each;
    inNode = starts === null ? inNode + 1 : 0;
    context.textAlign = "left";
    if (starts !== null) context.fillText(width < NAMED_FROM ? String(starts) : `node ${starts}`, x, 8);
    context.textAlign = "center";
    if (inNode % every === 0) context.fillText(mark, x + Math.min(each / 2, 13), 23);
  });
}
