import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, type PointerEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { errorMessage } from "../../api/client";
import { coloursOf, prepareCanvas, useColourScheme, useWidth } from "../../charts/canvas";
import { ExportMenu } from "../../components/ExportMenu";
import { CIVIDIS_GRADIENT } from "../../lib/cividis";
import { formatCount, formatFigure, perSecond } from "../../lib/format";
import nodeStyles from "../node.module.css";
import { type NodeView, useFrames } from "../nodeView";
import { matrixQuery } from "../queries";
import styles from "./interrupts.module.css";
import { MatrixTable } from "./MatrixTable";
import { matrixCsv } from "./matrixCsv";
import { columnRate, columnsOf, HEAD_HEIGHT, labelWidth, paintMatrix, ROW_HEIGHT, scaleEnd } from "./matrixPainter";
import { averageRates, type MatrixRow, matrixRows, ratesOfMatrix, stableRowOrder } from "./matrixRows";

const MAX_HEIGHT = 400;
/** Minimum time between two sorts of the rows; none happens under the pointer or the keyboard focus. */
const RESORT_MS = 15_000;

/** Frames needed before an order is retained. */
const MIN_FRAMES = 3;

/** The IRQ × CPU matrix: interrupts per second, as a chart or a table. */
export function InterruptMatrix({ view }: { view: NodeView }) {
  const matrix = useQuery(matrixQuery(view.node.id, view.past));
  const table = view.search.table === "irqs";
  const past = useMemo(
    () => (matrix.data === undefined ? null : matrixRows(view.inventory, ratesOfMatrix(matrix.data))),
    [matrix.data, view.inventory],
  );
  const all = useLiveRows(view, past);
  const [showsIdle, showIdle] = useState(false);
  const rows = useMemo(() => (showsIdle ? all : all.filter((row) => !row.idle)), [all, showsIdle]);
  const idle = all.length - all.filter((row) => !row.idle).length;
  const none = !view.inventory?.irqs.length;
  return (
    <section className="card" aria-labelledby="matrix-heading">
      <h2 className={nodeStyles.wrap}>
        <span id="matrix-heading">IRQ × CPU</span>
        <small>interrupts per second, {view.past === null ? "mean of the last 5 s" : "mean of the range"}</small>
        <span className="grow" />
        {rows.length > 0 && <Legend rows={rows} />}
        <ExportMenu
          name={`${view.node.name} interrupts by CPU`}
          range={() => view.past}
          csv={() =>
            matrixCsv(
              all,
              view.topology.cpus.map(({ cpu }) => cpu),
            )
          }
        />
        <button
          type="button"
          className="link"
          aria-pressed={table}
          onClick={() => view.navigate({ table: table ? undefined : "irqs" })}
        >
          {table ? "as chart" : "as table"}
        </button>
      </h2>
      {view.past !== null && matrix.isError && <p className={nodeStyles.note}>{errorMessage(matrix.error)}</p>}
      {rows.length === 0 ? (
        <p className={`${nodeStyles.note} ${none ? "" : styles.matrixNote}`} aria-busy={matrix.isFetching}>
          {matrix.isFetching
            ? "Loading interrupts…"
            : none
              ? "This node reports no interrupts."
              : "No interrupt data for this time range."}
        </p>
      ) : table ? (
        <MatrixTable view={view} rows={rows} />
      ) : (
        <MatrixPicture view={view} rows={rows} />
      )}
      {idle > 0 && (
        <p className={styles.idle}>
          <button type="button" className="link" onClick={() => showIdle(!showsIdle)} aria-pressed={showsIdle}>
            {showsIdle ? "hide" : "show"} {formatCount(idle, "interrupt")} that did not occur
          </button>
        </p>
      )}
    </section>
  );
}

function Legend({ rows }: { rows: MatrixRow[] }) {
  return (
    <small className={nodeStyles.legend}>
      0 <i style={{ background: CIVIDIS_GRADIENT }} /> {formatFigure(perSecond(scaleEnd(rows)))}, logarithmic
    </small>
  );
}

/** The current rows in an order that changes at most every 15 s. */
function useLiveRows(view: NodeView, past: MatrixRow[] | null): (MatrixRow & { idle: boolean })[] {
  const version = useFrames(view.window);
  const order = useRef<{ at: number; labels: string[] }>({ at: 0, labels: [] });
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is mutated in place; version changes with it.
  return useMemo(() => {
    if (view.past !== null) return (past ?? []).map((row) => ({ ...row, idle: row.total === 0 }));
    const rows = matrixRows(view.inventory, averageRates(view.window.recent));
    const isInUse = document.querySelector(`.${nodeStyles.matrix}:hover, .${nodeStyles.matrix}:focus-within`) !== null;
    if (order.current.labels.length === 0 || (!isInUse && Date.now() - order.current.at > RESORT_MS))
      order.current = {
        at: view.window.recent.length < MIN_FRAMES ? 0 : Date.now(),
        labels: rows.filter(({ total }) => total !== 0).map(({ label }) => label),
      };
    // A row that falls silent stays until the next sort: the matrix does not change its height every second.
    const shown = new Set(order.current.labels);
    return stableRowOrder(rows, order.current.labels).map((row) => ({
      ...row,
      idle: row.total === 0 && !shown.has(row.label),
    }));
  }, [view.past, view.inventory, view.window, past, version]);
}

function MatrixPicture({ view, rows }: { view: NodeView; rows: MatrixRow[] }) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const [at, setAt] = useState<{ row: number; column: number } | null>(null);
  const [scrollTop, setScrollTop] = useState(0);
  const width = useWidth(box);
  const scheme = useColourScheme();
  const help = useId();
  const columns = useMemo(() => columnsOf(view.topology, width), [view.topology, width]);
  const selected = view.search.sel?.startsWith("irq:") ? Number(view.search.sel.slice(4)) : null;
  const height = HEAD_HEIGHT + rows.length * ROW_HEIGHT;
  const shown = Math.min(height, MAX_HEIGHT);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new colour scheme has new colours.
  useEffect(() => {
    if (canvas.current === null || width === 0) return;
    const context = prepareCanvas(canvas.current, width, shown);
    if (context === null) return;
    const picture = { rows, columns, width, height: shown, scrollTop, selected, at };
    paintMatrix(context, coloursOf(canvas.current), picture);
  }, [rows, columns, width, shown, scrollTop, selected, at, scheme]);

  const describe = (row: MatrixRow | undefined, column: number) => {
    if (row === undefined) return "";
    const of = columns[column];
    const rate = of === undefined || row.total === null ? row.total : columnRate(row, of);
    const name = `${row.irq === null ? "" : "IRQ "}${row.label} ${row.name}`.trim();
    return `${name}${of === undefined ? "" : ` on ${of.name}`}: ${formatFigure(perSecond(rate))}`;
  };
  const cellAt = (event: PointerEvent<HTMLDivElement>) => {
    const bounds = event.currentTarget.getBoundingClientRect();
    const y = event.clientY - bounds.top - HEAD_HEIGHT;
    const x = event.clientX - bounds.left - labelWidth(width);
    const each = (width - labelWidth(width)) / Math.max(1, columns.length);
    return { row: y < 0 ? -1 : Math.floor((y + scrollTop) / ROW_HEIGHT), column: x < 0 ? -1 : Math.floor(x / each) };
  };
  const hover = (event: PointerEvent<HTMLDivElement> | null) => {
    if (tip.current === null) return;
    const cell = event === null ? null : cellAt(event);
    const row = cell === null ? undefined : rows[cell.row];
    tip.current.style.display = row === undefined ? "none" : "block";
    if (event === null || cell === null || row === undefined) return;
    const [first, second] = tip.current.children;
    if (first) first.textContent = describe(row, cell.column);
    if (second) second.textContent = row.locked ?? "";
    tip.current.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.current.offsetWidth - 8)}px`;
    tip.current.style.top = `${event.clientY + 14}px`;
  };
  const open = (row: MatrixRow | undefined) => {
    if (row !== undefined && row.irq !== null) view.navigate({ sel: `irq:${row.irq}` });
  };
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.key === "Enter" && at !== null) return open(rows[at.row]);
    const [down, across] = MOVES[event.key] ?? [0, 0];
    if (down === 0 && across === 0) return;
    event.preventDefault();
    const row = Math.max(0, Math.min(rows.length - 1, (at?.row ?? -1) + down));
    const column = Math.max(0, Math.min(columns.length - 1, (at?.column ?? 0) + across));
    setAt({ row, column });
    if (box.current !== null) {
      const [first, last] = [row * ROW_HEIGHT, HEAD_HEIGHT + (row + 1) * ROW_HEIGHT - shown];
      box.current.scrollTop = Math.max(Math.min(box.current.scrollTop, first), last);
    }
  };
  return (
    <div className="body">
      <p id={help} className="visually-hidden">
        {formatCount(rows.length, "row")}. Arrow keys move; Enter opens an interrupt.
      </p>
      <div
        ref={box}
        className={nodeStyles.matrix}
        style={{ maxHeight: MAX_HEIGHT }}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: role application is a widget.
        tabIndex={0}
        role="application"
        aria-label="Matrix of interrupts by CPU"
        aria-describedby={help}
        onKeyDown={onKeyDown}
        onScroll={(event) => setScrollTop(event.currentTarget.scrollTop)}
        onBlur={() => setAt(null)}
      >
        <div style={{ height }}>
          <div
            className={nodeStyles.stuck}
            style={{ height: shown }}
            onPointerMove={hover}
            onPointerLeave={() => hover(null)}
            onPointerUp={(event) => event.button === 0 && open(rows[cellAt(event).row])}
          >
            <canvas ref={canvas} />
          </div>
        </div>
      </div>
      <div ref={tip} className={nodeStyles.tip}>
        <b />
        <span />
      </div>
      <div className="visually-hidden" aria-live="polite">
        {at === null ? "" : describe(rows[at.row], at.column)}
      </div>
    </div>
  );
}

const MOVES: Record<string, [down: number, across: number]> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
  PageDown: [10, 0],
  PageUp: [-10, 0],
};
