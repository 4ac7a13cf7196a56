import { type KeyboardEvent, type PointerEvent, type RefObject, useId, useMemo, useRef, useState } from "react";
import { clock, dateTime } from "../../lib/time";
import nodeStyles from "../node.module.css";
import { type NodeView, shownHeat } from "../nodeView";
import { cpuLocation } from "../topology";
import { type Row, rowName } from "./coreRows";
import styles from "./cores.module.css";
import { HeatColumn } from "./HeatColumn";
import { type Cell, cellText, nextCell } from "./heatmapGeometry";
import type { Chip } from "./irqChips";
import type { Columns } from "./useColumns";

const KEYS_HELP =
  "Arrow keys move by row and time, with Shift by ten columns; Home and End move to the first and the last " +
  "row; Enter opens a CPU, and opens or folds a group. “As table” has the same values.";

type Props = {
  view: NodeView;
  columns: Columns;
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
  targets: readonly number[];
  box: RefObject<HTMLDivElement | null>;
};

/** CPU × time heatmap, drawn without React renders; supports hover, brushing and arrow keys. */
export function Heatmap({ view, columns: { columns, density, toggle }, chips, isolated, targets, box }: Props) {
  const { topology, past, search, navigate } = view;
  const tip = useRef<HTMLDivElement>(null);
  const cell = useRef<Cell | null>(null);
  const redraws = useRef(new Set<() => void>());
  const [announcement, setAnnouncement] = useState("");
  const help = useId();
  const share = search.share ?? "busy";
  const rows = useMemo(() => columns.flatMap((column) => column.rows), [columns]);
  const redraw = () => {
    for (const draw of redraws.current) draw();
  };
  const describe = ({ row, timeMs }: Cell) => cellText(shownHeat(view), rows[row], timeMs, share);

  const hover = (event: PointerEvent<HTMLDivElement> | null, at: number) => {
    if (tip.current === null) return;
    const timeMs = view.cursor.get();
    const row = rows[at];
    if (event === null || row === undefined || timeMs === null) {
      tip.current.style.display = "none";
      return;
    }
    const when = past !== null ? dateTime(timeMs) : clock(timeMs);
    const where = row.kind === "cpu" ? ` · ${cpuLocation(topology, row.cpu)}` : "";
    placeTip(tip.current, event, [`${rowName(row)}: ${describe({ row: at, timeMs })}`, when + where]);
  };
  const open = (row: Row | undefined) => {
    if (row?.kind === "cpu") navigate({ sel: `cpu:${row.cpu}` });
    else if (row !== undefined) toggle(row.group.id);
  };

  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    const cells = shownHeat(view);
    if (cells === null) return;
    const before = cell.current ?? { row: -1, timeMs: cells.endMs - cells.columnMs / 2 };
    if (event.key === "Enter") {
      event.preventDefault();
      open(rows[before.row]);
      return;
    }
    const after = nextCell(event.key, before, rows.length, (event.shiftKey ? 10 : 1) * cells.columnMs);
    if (after === null) return;
    event.preventDefault();
    after.timeMs = Math.max(cells.startMs, Math.min(cells.endMs - cells.columnMs / 2, after.timeMs));
    cell.current = after;
    const row = rows[after.row];
    if (row === undefined) return;
    view.cursor.set(after.timeMs);
    setAnnouncement(`${rowName(row)}, ${clock(after.timeMs)}: ${describe(after)}`);
    redraw();
  };

  return (
    <div className={`body ${styles.body}`}>
      <p id={help} className="visually-hidden">
        {KEYS_HELP}
      </p>
      <div
        ref={box}
        className={styles.columns}
        data-columns={columns.length}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: role application is a widget.
        tabIndex={0}
        role="application"
        aria-label={`Heatmap of the ${share} share by CPU and time`}
        aria-describedby={help}
        onKeyDown={onKeyDown}
        onBlur={() => {
          cell.current = null;
          redraw();
        }}
      >
        {columns.map((column) => (
          <HeatColumn
            key={column.first}
            {...{ view, column, density, share, chips, isolated, targets, cell, redraws }}
            onToggle={toggle}
            onHover={hover}
            onOpen={(row) => open(rows[row])}
          />
        ))}
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

/** Places the tooltip's two lines right of the pointer, or left without room. */
function placeTip(box: HTMLDivElement, { clientX, clientY }: PointerEvent, lines: [string, string]): void {
  for (const [index, line] of lines.entries()) {
    const child = box.children[index];
    if (child) child.textContent = line;
  }
  box.style.display = "block";
  const left = clientX + 14 + box.offsetWidth > document.documentElement.clientWidth;
  box.style.left = `${Math.max(4, left ? clientX - box.offsetWidth - 14 : clientX + 14)}px`;
  box.style.top = `${clientY + 14}px`;
}
