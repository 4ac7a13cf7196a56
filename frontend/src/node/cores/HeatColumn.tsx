import { type CSSProperties, type PointerEvent, type RefObject, useMemo, useRef } from "react";
import { useWidth } from "../../charts/canvas";
import { TimeOverlay } from "../../charts/TimeOverlay";
import { axisTime } from "../../lib/time";
import type { HeatShare } from "../cpuShares";
import { type NodeView, shownHeat, useFrames } from "../nodeView";
import { useLoad } from "../time/useLoad";
import { CoreLabels } from "./CoreLabels";
import { type Density, nodeSpans, rowOfCpu } from "./coreRows";
import styles from "./cores.module.css";
import { meanShare, shareText } from "./currentLoad";
import type { Cell } from "./heatmapGeometry";
import type { Chip } from "./irqChips";
import type { ShownColumn } from "./useColumns";
import { useHeatmapPainting } from "./useHeatmapPainting";

/** Height in pixels from which a NUMA node's bar has room for its name. */
const NAMED_SPAN = 38;

type Props = {
  view: NodeView;
  column: ShownColumn;
  density: Density;
  share: HeatShare;
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
  /** CPUs to which the suggestion moves work. */
  targets: readonly number[];
  cell: RefObject<Cell | null>;
  redraws: RefObject<Set<() => void>>;
  onToggle: (group: number) => void;
  /** The pointer over a row, by its number among all columns; null when it leaves. */
  onHover: (event: PointerEvent<HTMLDivElement> | null, row: number) => void;
  onOpen: (row: number) => void;
};

/** A column of the heatmap: NUMA nodes, row headers, cells, current values and a time axis. */
export function HeatColumn(props: Props) {
  const { view, column, density, share, chips, isolated, targets, cell, redraws, onToggle, onHover, onOpen } = props;
  const { rows, bands, height, first } = column;
  const canvas = useRef<HTMLCanvasElement>(null);
  const plot = useRef<HTMLDivElement>(null);
  const width = Math.max(0, useWidth(plot) - density.load);
  const { sel } = view.search;
  useHeatmapPainting({ canvas, cell, redraws, view, column, density, share, width });
  const spans = useMemo(() => (density.phone ? [] : nodeSpans(rows, bands)), [rows, bands, density]);
  const rowAt = (event: PointerEvent<HTMLDivElement>) => {
    const y = event.clientY - event.currentTarget.getBoundingClientRect().top;
    return bands.findIndex((band) => y >= band.top && y < band.top + band.height);
  };
  const box = (cpu: number, kind: "selected" | "target") => {
    const band = bands[rowOfCpu(rows, cpu)];
    if (band === undefined) return null;
    return (
      <i key={kind + cpu} className={styles.box} data-kind={kind} style={{ top: band.top, height: band.height }} />
    );
  };
  const sizes = {
    "--nodes": spans.length > 0 ? "17px" : "0px",
    "--labels": `${density.label}px`,
    "--load": `${density.load}px`,
    "--label-font": `${density.font}px`,
  } as CSSProperties;
  return (
    <div style={sizes}>
      {column.title !== "" && <Title view={view} column={column} share={share} />}
      <div className={styles.rows} style={{ height }}>
        <div>
          {spans.map(({ node, top, height }) => (
            <div key={top} className={styles.node} style={{ top, height: height - 1 }} title={`NUMA node ${node}`}>
              <span>{height >= NAMED_SPAN ? `node ${node}` : node}</span>
              {height >= 2 * NAMED_SPAN && localDevices(view, node)}
            </div>
          ))}
        </div>
        <CoreLabels
          rows={rows}
          bands={bands}
          density={density}
          chips={chips}
          isolated={isolated}
          selectedIrq={sel?.startsWith("irq:") ? Number(sel.slice(4)) : null}
          onToggle={onToggle}
          onSelect={(sel) => view.navigate({ sel })}
        />
        <div ref={plot} className={styles.plot}>
          <canvas ref={canvas} />
          <div className={styles.cells}>
            <HeatOverlay
              view={view}
              onHover={(event) => onHover(event, event === null ? -1 : first + rowAt(event))}
              onClick={(event) => onOpen(first + rowAt(event))}
            />
          </div>
        </div>
        {targets.map((cpu) => box(cpu, "target"))}
        {sel?.startsWith("cpu:") && box(Number(sel.slice(4)), "selected")}
      </div>
      <Axis view={view} />
    </div>
  );
}

/** The NICs of a NUMA node, after its name. */
function localDevices(view: NodeView, node: number): string {
  const local = view.inventory?.netdevs.filter((netdev) => !netdev.virtual && netdev.numa_node === node) ?? [];
  return local.length === 0 ? "" : ` · ${local.map(({ name }) => name).join(", ")}`;
}

function Title({ view, column, share }: { view: NodeView; column: ShownColumn; share: HeatShare }) {
  const { shares } = useLoad(view, share);
  return (
    <h3 className={styles.title}>
      <span>
        <b>{column.title}</b> {column.detail !== "" && `· ${column.detail}`}
      </span>
      <span>mean {shareText(meanShare(column.cpus, shares))}</span>
    </h3>
  );
}

/** The shown time range, or the live window's; a new object only when it changes. */
function useRange(view: NodeView) {
  const version = useFrames(view.window);
  const block = shownHeat(view);
  const { from, to } = block === null ? (view.past ?? view.window.range()) : { from: block.startMs, to: block.endMs };
  // biome-ignore lint/correctness/useExhaustiveDependencies: the range changes only with the window's version.
  return useMemo(() => ({ from, to }), [version, block]);
}

/** The times of the start, the middle and the end. */
function Axis({ view }: { view: NodeView }) {
  const { from, to } = useRange(view);
  return (
    <div className={styles.axis} aria-hidden="true">
      {[from, (from + to) / 2, to].map((timeMs, index) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: three fixed places.
        <span key={index}>{axisTime(timeMs, to - from)}</span>
      ))}
    </div>
  );
}

type OverlayProps = {
  view: NodeView;
  onHover: (event: PointerEvent<HTMLDivElement> | null) => void;
  onClick: (event: PointerEvent<HTMLDivElement>) => void;
};

/** The overlay of the cells; rerenders with the live window, separately from the heatmap. */
function HeatOverlay({ view, onHover, onClick }: OverlayProps) {
  const range = useRange(view);
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
