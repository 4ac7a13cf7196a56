import { type RefObject, useEffect } from "react";
import { type Colours, coloursOf, hatchPattern, prepareCanvas, useColourScheme } from "../../charts/canvas";
import type { HeatBlock } from "../../charts/heatBlock";
import { type Band, HeatPainter } from "../../charts/heatPainter";
import type { HeatShare } from "../cpuShares";
import { type NodeView, shownHeat } from "../nodeView";
import { useLoad } from "../time/useLoad";
import type { Density } from "./coreRows";
import { drawShares } from "./currentLoad";
import type { Cell } from "./heatmapGeometry";
import type { ShownColumn } from "./useColumns";

type Painting = {
  canvas: RefObject<HTMLCanvasElement | null>;
  /** The cell with the keyboard cursor, by the row's number among all columns. */
  cell: RefObject<Cell | null>;
  /** Contains the repaint function while the column is shown, for the keyboard. */
  redraws: RefObject<Set<() => void>>;
  view: NodeView;
  column: ShownColumn;
  density: Density;
  share: HeatShare;
  /** Width in CSS pixels of the cells. */
  width: number;
};

/** Paints a column when its data, size or colours change; live frames repaint without a React render. */
export function useHeatmapPainting({ canvas, cell, redraws, view, column, density, share, width }: Painting) {
  const { window, past, staleSince } = view;
  const block = shownHeat(view);
  const scheme = useColourScheme();
  const ofRange = useLoad(view, share).shares;
  const pastShares = past === null ? null : ofRange;
  // biome-ignore lint/correctness/useExhaustiveDependencies: a new colour scheme has new colours; refs keep their identity.
  useEffect(() => {
    const painter = new HeatPainter();
    const colours = canvas.current === null ? null : coloursOf(canvas.current);
    const { bands, height, first } = column;
    const draw = () => {
      if (canvas.current === null || colours === null || width <= 0) return;
      const context = prepareCanvas(canvas.current, width + density.load, height);
      if (context === null) return;
      context.fillStyle = hatchPattern(context, colours.get("--line-strong"));
      for (const band of bands) if (band.cpus.length > 0) context.fillRect(0, band.top, width, band.height);
      if (block !== null) painter.paint(context, block, bands, width);
      context.fillStyle = colours.get("--panel");
      for (const { top, height: tall } of bands) context.fillRect(0, top + tall - 1, width, 1);
      const shares = pastShares ?? window.load().shares[share];
      drawShares(context, colours, { bands, density, share, isStale: staleSince !== null }, width, shares);
      const at = cell.current;
      if (at !== null && block !== null) outline(context, colours, block, at.timeMs, bands[at.row - first], width);
    };
    const all = redraws.current;
    all.add(draw);
    draw();
    const off = past === null ? window.on(draw) : undefined;
    return () => {
      all.delete(draw);
      off?.();
    };
  }, [window, past, pastShares, block, column, density, share, width, scheme, staleSince]);
}

/** Outlines the cell with the keyboard cursor, at least 8 pixels wide. */
function outline(
  context: CanvasRenderingContext2D,
  colours: Colours,
  cells: HeatBlock,
  timeMs: number,
  band: Band | undefined,
  width: number,
): void {
  if (band === undefined) return;
  const each = width / cells.columns;
  const x = (Math.floor((timeMs - cells.startMs) / cells.columnMs) + 0.5) * each;
  context.strokeStyle = colours.get("--crosshair-on-heat");
  context.lineWidth = 2;
  context.strokeRect(x - Math.max(4, each / 2), band.top + 1, Math.max(8, each), band.height - 3);
}
