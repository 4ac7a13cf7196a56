import { useElementSize } from "@mantine/hooks";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, type MouseEvent, useContext, useEffect, useMemo, useRef, useState } from "react";
import type { Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { useColourScheme } from "../charts/canvas";
import { CIVIDIS_GRADIENT } from "../lib/cividis";
import { bitRate, formatCount, formatFigure, perSecond } from "../lib/format";
import { formatOf } from "../lib/metrics";
import { zonedTime } from "../lib/time";
import type { Colouring } from "./colourings";
import { Difference } from "./Difference";
import styles from "./fleet.module.css";
import { paintMap, readMapColours } from "./fleetPainter";
import { type FleetFigures, fleetStore, ShownPast, useFigures } from "./fleetStore";
import { groupNodes } from "./groups";
import { cellAt, layOutCells, neighbourCell, rectOf } from "./layout";

type NodeSummary = Schemas["NodeSummary"];

export function Legend({ colouring }: { colouring: Colouring }) {
  return (
    <span className={styles.legend}>
      {colouring.ends[0]} <span style={{ background: CIVIDIS_GRADIENT }} /> {colouring.ends[1]}
    </span>
  );
}

/** A node's figure with its CPU: `94 % on CPU 2`; of a node that is not live the last one with its time. */
export function figureOf(node: NodeSummary, figures: FleetFigures, colouring: Colouring): string {
  const last = figures.last(node.id, colouring.column);
  if (last !== null) return `${formatFigure(formatOf(colouring.column)(last.value))} at ${zonedTime(last.timeMs)}`;
  const value = figures.get(node.id, colouring.column);
  if (Number.isNaN(value)) return "no data";
  const cpu = colouring.cpu === undefined ? Number.NaN : figures.get(node.id, colouring.cpu);
  return formatFigure(formatOf(colouring.column)(value)) + (Number.isNaN(cpu) ? "" : ` on CPU ${cpu}`);
}

function Hover({ node, colouring }: { node: NodeSummary; colouring: Colouring }) {
  const figures = useFigures();
  return (
    <>
      <div className={styles.tipName}>
        <b>{node.name}</b>
        {node.simulated && <span className="tag simulated">simulated</span>}
        {figures.moment === null && <span className="muted">{figures.health(node.id)}</span>}
      </div>
      <div>
        {METRICS[colouring.column].short} <b>{figureOf(node, figures, colouring)}</b>{" "}
        <Difference nodeId={node.id} column={colouring.column} />
      </div>
      <div className="muted">
        receive {formatFigure(bitRate(figures.get(node.id, "rx_bytes_per_s")))} · interrupts{" "}
        {formatFigure(perSecond(figures.get(node.id, "interrupts_per_s")))} · dropped{" "}
        {formatFigure(perSecond(figures.get(node.id, "softnet_dropped_per_s")))}
      </div>
    </>
  );
}

const TIP_WIDTH = 300;

/** A map with one cell per node, coloured by a figure, redrawn every second on a canvas. */
export function FleetMap({ nodes, group, colouring }: { nodes: NodeSummary[]; group?: string; colouring: Colouring }) {
  const { ref, width } = useElementSize();
  const canvas = useRef<HTMLCanvasElement>(null);
  const scheme = useColourScheme();
  const past = useContext(ShownPast);
  const navigate = useNavigate();
  const [pointed, setPointed] = useState<number | null>(null);
  const [selected, setSelected] = useState<number | null>(null);
  const groups = useMemo(() => groupNodes(nodes, group), [nodes, group]);
  const ordered = useMemo(() => groups.flatMap((one) => one.nodes), [groups]);
  const layout = useMemo(
    () =>
      layOutCells(
        groups.map((one) => ({ name: one.name, count: one.nodes.length })),
        width,
      ),
    [groups, width],
  );

  // biome-ignore lint/correctness/useExhaustiveDependencies: the colour scheme changes the tokens' values
  useEffect(() => {
    const element = canvas.current;
    if (element === null || width === 0) return;
    const colours = readMapColours(element);
    const cells = ordered.map((node) => ({ ...node, changing: past === null && node.open_changes > 0 }));
    const paint = () =>
      paintMap(element, width, layout, cells, past?.figures ?? fleetStore.getLatest(), colouring, colours);
    paint();
    return past === null ? fleetStore.subscribe(paint) : undefined;
  }, [ordered, layout, width, colouring, scheme, past]);

  const at = pointed ?? selected;
  const node = at === null ? undefined : ordered[at];
  const rect = at === null ? null : rectOf(layout, at);
  const open = (index: number | null) => {
    const target = index === null ? undefined : ordered[index];
    if (target !== undefined) void navigate({ to: "/nodes/$nodeId", params: { nodeId: target.id } });
  };
  const cellUnder = (event: MouseEvent<HTMLElement>) =>
    cellAt(layout, event.nativeEvent.offsetX, event.nativeEvent.offsetY);
  const onKey = (event: KeyboardEvent) => {
    if (event.key === "Enter") open(selected);
    else if (event.key === "Escape") setSelected(null);
    else if (/^(Arrow|Home$|End$)/.test(event.key)) {
      event.preventDefault();
      setPointed(null);
      setSelected(selected === null ? 0 : neighbourCell(layout, selected, event.key));
    }
  };
  return (
    <>
      <div
        ref={ref}
        className={styles.map}
        role="application"
        // biome-ignore lint/a11y/noNoninteractiveTabindex: a grid drawn on a canvas needs the keyboard
        tabIndex={0}
        aria-label={`Map of ${formatCount(ordered.length, "node")} by ${METRICS[colouring.column].short}. Arrow keys move, Enter opens; the table view has the same figures.`}
        onKeyDown={onKey}
        onFocus={() => setSelected(selected ?? 0)}
        onBlur={() => setSelected(null)}
      >
        <canvas
          ref={canvas}
          style={{ width, height: layout.height }}
          onMouseMove={(event) => setPointed(cellUnder(event))}
          onMouseLeave={() => setPointed(null)}
          onClick={(event) => open(cellUnder(event))}
        />
        {rect !== null && (
          <span
            className={styles.ring}
            style={{ transform: `translate(${rect.x - 1}px, ${rect.y - 1}px)`, width: rect.width, height: rect.height }}
          />
        )}
        {/* It stays in the page while nothing is pointed at, so that a screen reader hears what changes in it. */}
        <div
          className={styles.tip}
          hidden={node === undefined}
          aria-live={pointed === null ? "polite" : "off"}
          style={
            rect === null
              ? undefined
              : {
                  left: Math.max(0, Math.min(rect.x, width - TIP_WIDTH)),
                  top: rect.y + rect.height + 4,
                  width: TIP_WIDTH,
                }
          }
        >
          {node !== undefined && <Hover node={node} colouring={colouring} />}
        </div>
      </div>
      <p className={styles.hint}>
        <span className={styles.withPointer}>
          Hover over a cell to see its values; click it or press Enter to open the node.
        </span>
        <span className={styles.withTouch}>Tap a cell to open the node.</span>
      </p>
    </>
  );
}
