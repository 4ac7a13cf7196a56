import { type KeyboardEvent, type PointerEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { coloursOf, hatch, prepare, useColourScheme, useWidth } from "../../charts/canvas";
import { NO_DATA } from "../../charts/heatBlock";
import { type Band, HeatPainter, pooled } from "../../charts/heatPainter";
import { TimeOverlay } from "../../charts/TimeOverlay";
import { formatCpuList } from "../../lib/cpulist";
import { percent, text } from "../../lib/format";
import { clock, dateTime } from "../../lib/time";
import type { Chip } from "../interrupts/matrixRows";
import styles from "../node.module.css";
import { heatOf, type NodeView, useFrames } from "../nodeView";
import { CoreLabels } from "./CoreLabels";
import { placeOf, type Row, rowHeight } from "./coreRows";
import { drawNow, NOW_WIDTH } from "./currentLoad";

const HEADING_HEIGHT = 22;
const MAX_HEIGHT = 640;

/** Where each line is; an unfolded group's heading has no cells. */
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

type Cell = { row: number; timeMs: number };
type Props = {
  view: NodeView;
  rows: Row[];
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
  onToggle: (key: string) => void;
};

/** CPUs × time on a canvas: drawn from the live window without React, hovered, brushed, and walked with the arrows. */
export function Heatmap({ view, rows, chips, isolated, onToggle }: Props) {
  const { topology, window, past, search, navigate } = view;
  const scroll = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const right = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const cell = useRef<Cell | null>(null);
  const [said, setSaid] = useState("");
  const width = useWidth(right);
  const scheme = useColourScheme();
  const help = useId();
  const { bands, height } = useMemo(() => bandsOf(rows), [rows]);
  const shownHeight = Math.min(height, MAX_HEIGHT);
  const heatWidth = Math.max(0, width - NOW_WIDTH);
  const block = heatOf(view);
  const share = search.share ?? "busy";
  const selected = search.sel?.startsWith("cpu:") ? Number(search.sel.slice(4)) : null;
  const redraw = useRef<() => void>(() => undefined);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new colour scheme has new colours.
  useEffect(() => {
    const painter = new HeatPainter();
    const colours = canvas.current === null ? null : coloursOf(canvas.current);
    const draw = () => {
      if (canvas.current === null || colours === null || heatWidth === 0) return;
      const context = prepare(canvas.current, width, shownHeight);
      if (context === null) return;
      const top = scroll.current?.scrollTop ?? 0;
      const cells = past === null ? window.heat : block;
      context.fillStyle = hatch(context, colours.get("--line-strong"));
      for (const band of bands) {
        if (band.cpus.length > 0) context.fillRect(0, band.top - top, heatWidth, band.height);
      }
      if (cells !== null) painter.paint(context, cells, bands, heatWidth, shownHeight, top);
      context.fillStyle = colours.get("--panel");
      for (const { top: y, height: tall } of bands)
        if (tall >= 12) context.fillRect(0, y + tall - 1 - top, heatWidth, 1);
      const now = past === null ? window.last : undefined;
      drawNow(context, colours, bands, heatWidth, top, now, past === null ? null : cells);
      const at = cell.current;
      const band = at === null ? undefined : bands[at.row];
      if (at !== null && band !== undefined && cells !== null) {
        const each = heatWidth / cells.columns;
        const x = (Math.floor((at.timeMs - cells.startMs) / cells.columnMs) + 0.5) * each;
        context.strokeStyle = colours.get("--text");
        context.lineWidth = 2;
        context.strokeRect(x - Math.max(4, each / 2), band.top - top + 1, Math.max(8, each), band.height - 2);
      }
    };
    redraw.current = draw;
    draw();
    return past === null ? window.on(draw) : undefined;
  }, [window, past, block, bands, heatWidth, width, shownHeight, scheme]);

  const nameOf = (row: Row) =>
    row.kind === "cpu" ? `CPU ${row.cpu}` : `${row.label}, highest of CPUs ${formatCpuList(row.cpus)}`;
  const told = ({ row, timeMs }: Cell) => {
    const [cells, at] = [heatOf(view), rows[row]];
    if (cells === null || at === undefined) return "no data";
    const column = cells.first + Math.floor((timeMs - cells.startMs) / cells.columnMs);
    const value = pooled(cells, at.cpus, column, column);
    return value === NO_DATA ? "no data" : `${share} ${text(percent(value / 2))}`;
  };

  const hover = (event: PointerEvent<HTMLDivElement> | null) => {
    const box = tip.current;
    if (box === null) return;
    const at = event === null ? null : rowAt(event);
    const timeMs = view.cursor.get();
    const row = at === null ? undefined : rows[at];
    if (event === null || at === null || row === undefined || timeMs === null || (bands[at]?.cpus.length ?? 0) === 0) {
      box.style.display = "none";
      return;
    }
    const [first, second] = box.children;
    if (first) first.textContent = `${nameOf(row)}: ${told({ row: at, timeMs })}`;
    if (second)
      second.textContent = `${past !== null ? dateTime(timeMs) : clock(timeMs)}${row.kind === "cpu" ? ` · ${placeOf(topology, row.cpu)}` : ""}`;
    box.style.display = "block";
    const left = event.clientX + 14 + box.offsetWidth > document.documentElement.clientWidth;
    box.style.left = `${left ? event.clientX - box.offsetWidth - 14 : event.clientX + 14}px`;
    box.style.top = `${event.clientY + 14}px`;
  };
  const rowAt = (event: PointerEvent<HTMLDivElement>): number | null => {
    const y = event.clientY - event.currentTarget.getBoundingClientRect().top + (scroll.current?.scrollTop ?? 0);
    const found = bands.findIndex((band) => y >= band.top && y < band.top + band.height);
    return found === -1 ? null : found;
  };
  const open = (row: Row | undefined) => {
    if (row?.kind === "cpu") navigate({ sel: `cpu:${row.cpu}` });
    else if (row !== undefined) onToggle(row.key);
  };

  const walk = (event: KeyboardEvent<HTMLDivElement>) => {
    const cells = heatOf(view);
    if (cells === null) return;
    const before = cell.current ?? { row: -1, timeMs: cells.endMs - cells.columnMs / 2 };
    const after = step(event.key, before, rows.length, (event.shiftKey ? 10 : 1) * cells.columnMs);
    if (event.key === "Enter") {
      event.preventDefault();
      open(rows[before.row]);
      return;
    }
    if (after === null) return;
    event.preventDefault();
    after.timeMs = Math.max(cells.startMs, Math.min(cells.endMs - cells.columnMs / 2, after.timeMs));
    cell.current = after;
    const [band, row, box] = [bands[after.row], rows[after.row], scroll.current];
    if (band === undefined || row === undefined || box === null) return;
    box.scrollTop = Math.max(Math.min(box.scrollTop, band.top), band.top + band.height - shownHeight);
    view.cursor.set(after.timeMs);
    setSaid(`${nameOf(row)}, ${clock(after.timeMs)}: ${band.cpus.length === 0 ? "group" : told(after)}`);
    redraw.current();
  };

  return (
    <div className="body">
      <p id={help} className="visually-hidden">
        Arrow keys move by line and by time, with Shift ten columns at once; Home and End go to the first and the last
        line; Enter opens a CPU or folds a group. The same numbers are under “view as table”.
      </p>
      <div
        ref={scroll}
        className={styles.heat}
        style={{ maxHeight: MAX_HEIGHT }}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: role application is a widget.
        tabIndex={0}
        role="application"
        aria-label={`Heatmap of the ${share} share by CPU and time`}
        aria-describedby={help}
        onKeyDown={walk}
        onScroll={() => redraw.current()}
        onBlur={() => {
          cell.current = null;
          redraw.current();
        }}
      >
        <CoreLabels
          rows={rows}
          bands={bands}
          chips={chips}
          isolated={isolated}
          selected={selected}
          selectedIrq={search.sel?.startsWith("irq:") ? Number(search.sel.slice(4)) : null}
          onToggle={onToggle}
          onSelect={(sel) => navigate({ sel })}
        />
        <div ref={right} style={{ height }}>
          <div className={styles.stuck} style={{ height: shownHeight }}>
            <canvas ref={canvas} />
            <div className={styles.plotArea} style={{ right: NOW_WIDTH }}>
              <HeatOverlay
                view={view}
                onHover={hover}
                onClick={(event) => {
                  const at = rowAt(event);
                  open(at === null ? undefined : rows[at]);
                }}
              />
            </div>
          </div>
        </div>
      </div>
      <div ref={tip} className={styles.tip}>
        <b />
        <span />
      </div>
      <div className="visually-hidden" aria-live="polite">
        {said}
      </div>
    </div>
  );
}

/** Where a key leads from a cell; null for keys that do not move. */
export function step(key: string, from: Cell, rows: number, stepMs: number): Cell | null {
  const last = rows - 1;
  if (key === "ArrowDown") return { ...from, row: Math.min(last, from.row + 1) };
  if (key === "ArrowUp") return { ...from, row: Math.max(0, from.row - 1) };
  if (key === "ArrowLeft") return { row: Math.max(0, from.row), timeMs: from.timeMs - stepMs };
  if (key === "ArrowRight") return { row: Math.max(0, from.row), timeMs: from.timeMs + stepMs };
  if (key === "Home") return { ...from, row: 0 };
  if (key === "End") return { ...from, row: last };
  return null;
}

type OverlayProps = {
  view: NodeView;
  onHover: (event: PointerEvent<HTMLDivElement> | null) => void;
  onClick: (event: PointerEvent<HTMLDivElement>) => void;
};

/** The overlay moves with the live window; the heatmap around it does not render for that. */
function HeatOverlay({ view, onHover, onClick }: OverlayProps) {
  const version = useFrames(view.window);
  const block = heatOf(view);
  const { from, to } = block === null ? view.window.range() : { from: block.startMs, to: block.endMs };
  // biome-ignore lint/correctness/useExhaustiveDependencies: a held window keeps its range until the next version.
  const range = useMemo(() => ({ from, to }), [version, block]);
  return (
    <TimeOverlay
      range={range}
      marks={view.marks}
      cursor={view.cursor}
      onZoom={view.zoom}
      onHold={view.hold}
      onHover={onHover}
      onClick={onClick}
    />
  );
}
