import { cividis } from "../lib/cividis";
import { formatCount, formatFigure } from "../lib/format";
import { formatOf } from "../lib/metrics";
import { clock } from "../lib/time";
import type { Colouring } from "./colourings";
import type { FleetFigures } from "./fleetStore";
import type { Layout } from "./layout";

const COLOURS = Array.from({ length: 256 }, (_, index) => {
  const [r, g, b] = cividis(index / 255);
  // Black text on the light half of the scale, white on the dark half: contrast at least 4.5 : 1.
  return { fill: `rgb(${r} ${g} ${b})`, ink: 0.299 * r + 0.587 * g + 0.114 * b > 118 ? "#000" : "#fff" };
});

/** Resolved theme colours and font for the map. */
export type MapColours = { text: string; muted: string; raised: string; hatch: string; change: string; font: string };

export function readMapColours(element: HTMLElement): MapColours {
  const style = getComputedStyle(element);
  const token = (name: string) => style.getPropertyValue(name).trim();
  return {
    text: token("--text"),
    muted: token("--muted"),
    raised: token("--raised"),
    hatch: token("--line-strong"),
    change: token("--change"),
    font: style.fontFamily,
  };
}

function hatching(context: CanvasRenderingContext2D, ink: string): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = 5;
  tile.height = 5;
  const pen = tile.getContext("2d");
  if (pen === null) return ink;
  pen.strokeStyle = ink;
  pen.beginPath();
  pen.moveTo(-1, 6);
  pen.lineTo(6, -1);
  pen.moveTo(-1, 1);
  pen.lineTo(1, -1);
  pen.moveTo(4, 6);
  pen.lineTo(6, 4);
  pen.stroke();
  return context.createPattern(tile, "repeat") ?? ink;
}

function truncated(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let end = text.length - 1;
  while (end > 1 && context.measureText(`${text.slice(0, end)}…`).width > width) end -= 1;
  return `${text.slice(0, end)}…`;
}

export type Cell = { id: number; name: string; simulated: boolean; changing: boolean };

/** Draws the map; 10,000 cells take a few milliseconds. */
export function paintMap(
  canvas: HTMLCanvasElement,
  width: number,
  layout: Layout,
  cells: Cell[],
  figures: FleetFigures,
  colouring: Colouring,
  colours: MapColours,
): void {
  const ratio = devicePixelRatio || 1;
  const [pixelsX, pixelsY] = [Math.round(width * ratio), Math.round(layout.height * ratio)];
  if (canvas.width !== pixelsX) canvas.width = pixelsX;
  if (canvas.height !== pixelsY) canvas.height = pixelsY;
  const context = canvas.getContext("2d");
  if (context === null) return;
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, layout.height);
  context.textBaseline = "middle";
  const hatch = hatching(context, colours.hatch);
  const gap = layout.cell.width > 8 ? 2 : 1;
  const [w, h] = [layout.cell.width - gap, layout.cell.height - gap];
  for (const block of layout.blocks) {
    context.font = `11px ${colours.font}`;
    context.fillStyle = colours.muted;
    if (block.header > 0) {
      const amount = formatCount(block.count, "node");
      const amountWidth = context.measureText(amount).width;
      context.fillText(truncated(context, block.name, block.width - amountWidth - 12), block.x, block.y + 8);
      context.fillText(amount, block.x + block.width - amountWidth, block.y + 8);
    }
    for (let at = 0; at < block.count; at++) {
      const cell = cells[block.first + at];
      if (cell === undefined) continue;
      const x = block.x + (at % block.columns) * layout.cell.width;
      const y = block.y + block.header + Math.floor(at / block.columns) * layout.cell.height;
      const value = figures.get(cell.id, colouring.column);
      const known = !Number.isNaN(value);
      const colour = COLOURS[Math.max(0, Math.min(255, Math.round(colouring.position(value) * 255)))];
      context.fillStyle = known && colour ? colour.fill : colours.raised;
      context.fillRect(x, y, w, h);
      if (!known) {
        context.fillStyle = hatch;
        context.fillRect(x, y, w, h);
      }
      if (layout.labelled) {
        context.fillStyle = known && colour ? colour.ink : colours.muted;
        context.font = `600 12px ${colours.font}`;
        context.fillText(truncated(context, cell.name, w - 14), x + 7, y + 14);
        context.font = `11px ${colours.font}`;
        const on = colouring.cpu === undefined ? Number.NaN : figures.get(cell.id, colouring.cpu);
        const health = figures.health(cell.id);
        const last = figures.last(cell.id, colouring.column);
        const format = formatOf(colouring.column);
        const figure = known
          ? formatFigure(format(value))
          : last !== null
            ? `${formatFigure(format(last.value))} at ${clock(last.timeMs)}`
            : health === "live" || figures.moment !== null
              ? "no data"
              : health;
        const parts = [figure, !known || Number.isNaN(on) ? "" : `CPU ${on}`, cell.simulated ? "simulated" : ""];
        context.fillText(truncated(context, parts.filter(Boolean).join(" · "), w - 14), x + 7, y + 30);
      }
      if (cell.changing) {
        context.strokeStyle = colours.change;
        context.lineWidth = 2;
        context.strokeRect(x + 1, y + 1, w - 2, h - 2);
      }
    }
  }
}
