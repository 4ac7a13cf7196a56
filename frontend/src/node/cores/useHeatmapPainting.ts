import { type RefObject, useEffect } from "react";
import { type Colours, coloursOf, hatchPattern, prepareCanvas, useColourScheme } from "../../charts/canvas";
import type { HeatBlock } from "../../charts/heatBlock";
import { type Band, HeatPainter } from "../../charts/heatPainter";
import { type NodeView, shownHeat } from "../nodeView";
import { drawCurrentLoad } from "./currentLoad";
import type { Cell } from "./heatmapGeometry";

/** Minimum band height in pixels for separators. */
const SEPARATED_HEIGHT = 12;

type Painting = {
  canvas: RefObject<HTMLCanvasElement | null>;
  scroll: RefObject<HTMLDivElement | null>;
  /** The cell with the keyboard cursor. */
  cell: RefObject<Cell | null>;
  /** Receives the repaint function, for scrolling and the keyboard. */
  redraw: RefObject<() => void>;
  view: NodeView;
  bands: Band[];
  /** Widths in CSS pixels: of the canvas, and of its part with cells. */
  width: number;
  heatWidth: number;
  height: number;
};

/** Paints the heatmap when its data, size or colours change; live frames repaint without a React render. */
export function useHeatmapPainting({ canvas, scroll, cell, redraw, view, bands, width, heatWidth, height }: Painting) {
  const { window, past } = view;
  const block = shownHeat(view);
  const scheme = useColourScheme();
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new colour scheme has new colours; refs keep their identity.
  useEffect(() => {
    const painter = new HeatPainter();
    const colours = canvas.current === null ? null : coloursOf(canvas.current);
    const draw = () => {
      if (canvas.current === null || colours === null || heatWidth === 0) return;
      const context = prepareCanvas(canvas.current, width, height);
      if (context === null) return;
      const top = scroll.current?.scrollTop ?? 0;
      // The live window replaces its block for another share without a render of this component.
      const cells = past === null ? window.heat : block;
      context.fillStyle = hatchPattern(context, colours.get("--line-strong"));
      for (const band of bands) if (band.cpus.length > 0) context.fillRect(0, band.top - top, heatWidth, band.height);
      if (cells !== null) painter.paint(context, cells, bands, heatWidth, height, top);
      context.fillStyle = colours.get("--panel");
      for (const { top: y, height: tall } of bands)
        if (tall >= SEPARATED_HEIGHT) context.fillRect(0, y + tall - 1 - top, heatWidth, 1);
      const now = past === null ? window.last : undefined;
      drawCurrentLoad(context, colours, bands, heatWidth, top, now, past === null ? null : cells);
      if (cell.current !== null && cells !== null)
        outline(context, colours, cells, cell.current, bands[cell.current.row], heatWidth, top);
    };
    redraw.current = draw;
    draw();
    return past === null ? window.on(draw) : undefined;
  }, [window, past, block, bands, heatWidth, width, height, scheme]);
}

/** Outlines the cell with the keyboard cursor, at least 8 pixels wide. */
function outline(
  context: CanvasRenderingContext2D,
  colours: Colours,
  cells: HeatBlock,
  { timeMs }: Cell,
  band: Band | undefined,
  heatWidth: number,
  top: number,
): void {
  if (band === undefined) return;
  const each = heatWidth / cells.columns;
  const x = (Math.floor((timeMs - cells.startMs) / cells.columnMs) + 0.5) * each;
  context.strokeStyle = colours.get("--text");
  context.lineWidth = 2;
  context.strokeRect(x - Math.max(4, each / 2), band.top - top + 1, Math.max(8, each), band.height - 2);
}
