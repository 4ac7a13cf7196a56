import { type Colours, hatchPattern } from "../../charts/canvas";
import { cividis, inkOn } from "../../lib/cividis";
import { formatFigure } from "../../lib/format";
import type { Coalescing, Surface } from "./nicParams";
import {
  amountOf,
  type Cell,
  type Colour,
  cellOf,
  exceedsBound,
  figureOf,
  fractionalIndex,
  scaleOf,
  scalePosition,
} from "./surface";

export const PLOT_LEFT = 76;
export const PLOT_TOP = 34;
const HEIGHT = 320;
/** Height with a single row. */
const ROW_HEIGHT = 150;
/** Minimum width of a cell that shows its figure above a measured point, from a height, and beside it. */
const FIGURE_WIDTH = 46;
const TALL = 40;
const BESIDE_WIDTH = 64;
/** Least space between two values of an axis; those that have none are left out. */
const LABEL_GAP = 4;
const POINT = 5;

export type SurfacePicture = {
  coalescing: Coalescing;
  surface: Surface;
  colour: Colour;
  allowedUs: number | null;
  width: number;
  selected: Cell | null;
  at: Cell | null;
};

/** The chart's height in CSS pixels; needs only the device's parameters. */
export function chartHeight(params: Record<string, string>): number {
  return "coalesce/rx-frames" in params ? HEIGHT : ROW_HEIGHT;
}

/** The size of a cell in CSS pixels. */
export function cellSize(surface: Surface, width: number): { w: number; h: number } {
  const rows = surface.predicted.length;
  const high = surface.rx_frames.length === 0 ? ROW_HEIGHT : HEIGHT;
  return { w: (width - PLOT_LEFT) / surface.rx_usecs.length, h: (high - PLOT_TOP) / rows };
}

const rgb = (place: number) => `rgb(${cividis(place).join(" ")})`;

/** Draws the surface, the edge of the bound, the measured points and the frames of current and selected values. */
export function paintSurface(context: CanvasRenderingContext2D, colours: Colours, picture: SurfacePicture): void {
  const { coalescing, surface, colour, allowedUs, width, selected, at } = picture;
  const { w, h } = cellSize(surface, width);
  const scale = scaleOf(surface, colour);
  const unknown = hatchPattern(context, colours.get("--line-strong"));
  const font = colours.get("--font");
  const isTall = h >= TALL;
  const hasFigures = w >= (isTall ? FIGURE_WIDTH : BESIDE_WIDTH);
  axes(context, colours, surface, w, h);
  surface.predicted.forEach((line, row) => {
    line.forEach((predicted, column) => {
      const [x, y] = [PLOT_LEFT + column * w, PLOT_TOP + row * h];
      const place = predicted === null ? 0 : scalePosition(amountOf(predicted, colour), scale);
      context.fillStyle = predicted === null ? unknown : rgb(place);
      context.fillRect(x, y, w - 1, h - 1);
      const exceeds = exceedsBound(surface, { row, column }, allowedUs);
      if (exceeds && predicted !== null) {
        context.globalAlpha = 0.62;
        context.fillStyle = colours.get("--panel");
        context.fillRect(x, y, w - 1, h - 1);
        context.globalAlpha = 1;
        context.fillStyle = unknown;
        context.fillRect(x, y, w - 1, h - 1);
      } else if (predicted !== null && hasFigures) {
        context.font = `10px ${font}`;
        context.textAlign = "center";
        context.textBaseline = "middle";
        context.fillStyle = inkOn(place);
        const figure = formatFigure(figureOf(amountOf(predicted, colour), colour));
        const center = isTall || w >= 2 * BESIDE_WIDTH ? w / 2 : (w - 2 * POINT - 4) / 2;
        context.fillText(figure, x + center, y + h / 2, w - 8);
      }
    });
  });
  edge(context, colours, picture, w, h);
  for (const point of coalescing.points) {
    if (point.rx_usecs === null) continue;
    const row = surface.rx_frames.length === 0 ? 0 : fractionalIndex(surface.rx_frames, point.rx_frames ?? 0);
    // below the figure, or beside it
    const inCell = hasFigures && !isTall ? w - POINT - 5 : w / 2;
    const x = PLOT_LEFT + fractionalIndex(surface.rx_usecs, point.rx_usecs) * w + inCell;
    const y = PLOT_TOP + (isTall ? (row + 1) * h - POINT - 8 : (row + 0.5) * h);
    const filled = colour === "interrupts" ? rgb(scalePosition(point.interrupts_per_s, scale)) : colours.get("--panel");
    dot(context, colours, x, y, filled, point.adaptive);
  }
  const { current } = coalescing;
  const currentCell = current.adaptive ? null : cellOf(surface, current.rx_usecs, current.rx_frames);
  if (currentCell !== null) mark(context, colours, currentCell, w, h, "--text", "now");
  if (selected !== null) mark(context, colours, selected, w, h, "--accent", "selected");
  if (at !== null) {
    context.strokeStyle = colours.get("--text");
    context.lineWidth = 1;
    context.setLineDash([3, 2]);
    context.strokeRect(PLOT_LEFT + at.column * w + 3, PLOT_TOP + at.row * h + 3, w - 7, h - 7);
    context.setLineDash([]);
  }
}

function axes(context: CanvasRenderingContext2D, colours: Colours, surface: Surface, w: number, h: number): void {
  context.fillStyle = colours.get("--muted");
  context.font = `11px ${colours.get("--font")}`;
  context.textBaseline = "middle";
  context.textAlign = "left";
  context.fillText("rx-usecs, µs →", PLOT_LEFT, 8);
  context.textAlign = "center";
  const end = PLOT_LEFT + surface.rx_usecs.length * w;
  let taken = 0;
  surface.rx_usecs.forEach((value, column) => {
    const middle = PLOT_LEFT + (column + 0.5) * w;
    const half = context.measureText(String(value)).width / 2;
    if (middle - half < taken || middle + half > end) return;
    taken = middle + half + LABEL_GAP;
    context.fillText(String(value), middle, 24);
  });
  context.textAlign = "right";
  if (surface.rx_frames.length > 0) context.fillText("rx-frames ↓", PLOT_LEFT - 8, 8);
  surface.rx_frames.forEach((value, row) => {
    context.fillText(String(value), PLOT_LEFT - 8, PLOT_TOP + (row + 0.5) * h);
  });
}

/** Draws the edge between cells within the bound and cells that exceed it. */
function edge(
  context: CanvasRenderingContext2D,
  colours: Colours,
  picture: SurfacePicture,
  w: number,
  h: number,
): void {
  const { surface, allowedUs } = picture;
  if (allowedUs === null) return;
  context.strokeStyle = colours.get("--warn");
  context.lineWidth = 2;
  context.beginPath();
  surface.predicted.forEach((line, row) => {
    line.forEach((_, column) => {
      const here = exceedsBound(surface, { row, column }, allowedUs);
      const [x, y] = [PLOT_LEFT + column * w - 0.5, PLOT_TOP + row * h - 0.5];
      if (column > 0 && here !== exceedsBound(surface, { row, column: column - 1 }, allowedUs)) {
        context.moveTo(x, y);
        context.lineTo(x, y + h);
      }
      if (row > 0 && here !== exceedsBound(surface, { row: row - 1, column }, allowedUs)) {
        context.moveTo(x, y);
        context.lineTo(x + w, y);
      }
    });
  });
  context.stroke();
}

function dot(
  context: CanvasRenderingContext2D,
  colours: Colours,
  x: number,
  y: number,
  filled: string,
  dashed: boolean,
): void {
  context.beginPath();
  context.arc(x, y, POINT, 0, 2 * Math.PI);
  context.fillStyle = filled;
  context.fill();
  context.strokeStyle = colours.get("--panel");
  context.lineWidth = 4;
  context.stroke();
  context.strokeStyle = colours.get("--text");
  context.lineWidth = 1.5;
  if (dashed) context.setLineDash([2, 2]);
  context.stroke();
  context.setLineDash([]);
}

/** Draws a frame around a cell with a label on its edge, clear of the figures. */
function mark(
  context: CanvasRenderingContext2D,
  colours: Colours,
  { row, column }: Cell,
  w: number,
  h: number,
  token: string,
  label: string,
): void {
  const [x, y] = [PLOT_LEFT + column * w, PLOT_TOP + row * h];
  context.strokeStyle = colours.get("--panel");
  context.lineWidth = 5;
  context.strokeRect(x, y, w - 1, h - 1);
  context.strokeStyle = colours.get(token);
  context.lineWidth = 2;
  context.strokeRect(x, y, w - 1, h - 1);
  context.font = `600 10px ${colours.get("--font")}`;
  context.textAlign = "left";
  context.textBaseline = "middle";
  const wide = context.measureText(label).width + 6;
  const up = Math.max(PLOT_TOP - 5, y - 7);
  const left = Math.max(PLOT_LEFT, Math.min(x, x + w - wide));
  context.fillStyle = colours.get(token);
  context.fillRect(left, up, wide, 13);
  context.fillStyle = colours.get("--panel");
  context.fillText(label, left + 3, up + 7);
}
