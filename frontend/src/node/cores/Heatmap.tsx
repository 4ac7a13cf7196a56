import { type KeyboardEvent, type PointerEvent, useId, useMemo, useRef, useState } from "react";
import { useWidth } from "../../charts/canvas";
import type { Band } from "../../charts/heatPainter";
import { TimeOverlay } from "../../charts/TimeOverlay";
import { clock, dateTime } from "../../lib/time";
import nodeStyles from "../node.module.css";
import { type NodeView, shownHeat, useFrames } from "../nodeView";
import { cpuLocation } from "../topology";
import { CoreLabels } from "./CoreLabels";
import type { Row } from "./coreRows";
import styles from "./cores.module.css";
import { CURRENT_LOAD_WIDTH } from "./currentLoad";
import { bandsOf, type Cell, cellText, nextCell, rowName } from "./heatmapGeometry";
import type { Chip } from "./irqChips";
import { useHeatmapPainting } from "./useHeatmapPainting";

const MAX_HEIGHT = 640;
const KEYS_HELP =
  "Arrow keys move by row and time, with Shift by ten columns; Home and End move to the first and the last " +
  "row; Enter opens a CPU or folds a group. “View as table” has the same values.";

type Props = {
  view: NodeView;
  rows: Row[];
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
  onToggle: (key: string) => void;
};

/** CPU × time heatmap on a canvas, drawn without React renders; supports hover, brushing and arrow keys. */
export function Heatmap({ view, rows, chips, isolated, onToggle }: Props) {
  const { topology, past, search, navigate } = view;
  const scroll = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const right = useRef<HTMLDivElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const cell = useRef<Cell | null>(null);
  const [announcement, setAnnouncement] = useState("");
  const width = useWidth(right);
  const help = useId();
  const { bands, height } = useMemo(() => bandsOf(rows), [rows]);
  const shownHeight = Math.min(height, MAX_HEIGHT);
  const heatWidth = Math.max(0, width - CURRENT_LOAD_WIDTH);
  const share = search.share ?? "busy";
  const selected = search.sel?.startsWith("cpu:") ? Number(search.sel.slice(4)) : null;
  const redraw = useRef<() => void>(() => undefined);

  useHeatmapPainting({ canvas, redraw, scroll, cell, view, bands, width, heatWidth, height: shownHeight });

  const describe = ({ row, timeMs }: Cell) => cellText(shownHeat(view), rows[row], timeMs, share);

  const hover = (event: PointerEvent<HTMLDivElement> | null) => {
    const box = tip.current;
    if (box === null) return;
    const at = event === null ? null : rowAtPointer(event, bands, scroll.current?.scrollTop ?? 0);
    const timeMs = view.cursor.get();
    const row = at === null ? undefined : rows[at];
    if (event === null || at === null || row === undefined || timeMs === null || (bands[at]?.cpus.length ?? 0) === 0) {
      box.style.display = "none";
      return;
    }
    const when = past !== null ? dateTime(timeMs) : clock(timeMs);
    const where = row.kind === "cpu" ? ` · ${cpuLocation(topology, row.cpu)}` : "";
    placeTip(box, event, [`${rowName(row)}: ${describe({ row: at, timeMs })}`, when + where]);
  };
  const open = (row: Row | undefined) => {
    if (row?.kind === "cpu") navigate({ sel: `cpu:${row.cpu}` });
    else if (row !== undefined) onToggle(row.key);
  };

  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const cells = shownHeat(view);
    if (cells === null) return;
    const before = cell.current ?? { row: -1, timeMs: cells.endMs - cells.columnMs / 2 };
    const after = nextCell(event.key, before, rows.length, (event.shiftKey ? 10 : 1) * cells.columnMs);
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
    setAnnouncement(`${rowName(row)}, ${clock(after.timeMs)}: ${band.cpus.length === 0 ? "group" : describe(after)}`);
    redraw.current();
  };

  return (
    <div className="body">
      <p id={help} className="visually-hidden">
        {KEYS_HELP}
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
        onKeyDown={onKeyDown}
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
          <div className={nodeStyles.stuck} style={{ height: shownHeight }}>
            <canvas ref={canvas} />
            <div className={styles.plotArea} style={{ right: CURRENT_LOAD_WIDTH }}>
              <HeatOverlay
                view={view}
                onHover={hover}
                onClick={(event) => {
                  const at = rowAtPointer(event, bands, scroll.current?.scrollTop ?? 0);
                  open(at === null ? undefined : rows[at]);
                }}
              />
            </div>
          </div>
        </div>
      </div>
      <div ref={tip} className={nodeStyles.tip}>
        <b />
        <span />
      </div>
      <div className="visually-hidden" aria-live="polite">
        {announcement}
      </div>
    </div>
  );
}

/** The index of the row under the pointer; null without one. */
function rowAtPointer(event: PointerEvent<HTMLDivElement>, bands: Band[], scrollTop: number): number | null {
  const y = event.clientY - event.currentTarget.getBoundingClientRect().top + scrollTop;
  const found = bands.findIndex((band) => y >= band.top && y < band.top + band.height);
  return found === -1 ? null : found;
}

/** Places the tooltip's two lines right of the pointer, or left without room. */
function placeTip(box: HTMLDivElement, { clientX, clientY }: PointerEvent, lines: [string, string]): void {
  for (const [index, line] of lines.entries()) {
    const child = box.children[index];
    if (child) child.textContent = line;
  }
  box.style.display = "block";
  const left = clientX + 14 + box.offsetWidth > document.documentElement.clientWidth;
  box.style.left = `${left ? clientX - box.offsetWidth - 14 : clientX + 14}px`;
  box.style.top = `${clientY + 14}px`;
}

type OverlayProps = {
  view: NodeView;
  onHover: (event: PointerEvent<HTMLDivElement> | null) => void;
  onClick: (event: PointerEvent<HTMLDivElement>) => void;
};

/** The overlay of the plot area; rerenders with the live window, separately from the heatmap. */
function HeatOverlay({ view, onHover, onClick }: OverlayProps) {
  const version = useFrames(view.window);
  const block = shownHeat(view);
  const { from, to } = block === null ? view.window.range() : { from: block.startMs, to: block.endMs };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the range changes only with the window's version.
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
