import { createContext, useContext, useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import { ABSENT_U32, HEALTHS } from "../api/constants";
import { nodesQuery, queryClient } from "../api/queries";
import { FLEET_METRICS, type FleetMetric } from "../lib/metrics";
import type { FleetFrame } from "../live/frames";
import { liveConnection } from "../live/socket";
import type { Moment } from "./pastTime";
import type { FigureColumn } from "./search";

/** Minimum time between two updates of order and membership, in ms: rows stay readable and clickable. */
const STABLE_MS = 5_000;

/** Without a frame for this time, in ms, all figures are stale. */
const SILENT_MS = 3_000;

const LIVE = HEALTHS.indexOf("live");
const STALE = HEALTHS.indexOf("stale");

/** A figure that is not up to date, and its time. */
export type LastFigure = { value: number; timeMs: number };
type Kept = { timeMs: number; values: Record<FigureColumn, number> };
const FIGURE_COLUMNS: FigureColumn[] = [...FLEET_METRICS, "busiest_cpu", "softirq_cpu"];

/** Figures of all nodes of one frame, by node id, and the last known ones of nodes that are not live. */
export class FleetFigures {
  readonly frame: FleetFrame;
  /** The past minute or hour that the figures are of; null for the present. */
  readonly moment: Moment | null = null;
  private readonly rows: Map<number, number>;
  /** The last figures of nodes that are not live; copies, because a reference would keep the whole frame. */
  private readonly kept = new Map<number, Kept>();

  constructor(frame: FleetFrame, before?: FleetFigures) {
    this.frame = frame;
    this.rows = new Map(Array.from(frame.node_id, (id, row) => [id, row]));
    if (before === undefined) return;
    for (const [id, row] of this.rows) {
      if (frame.health[row] === LIVE) continue;
      const wasLive = before.health(id) === "live" && before.frame.time_ms > 0;
      const kept = wasLive ? before.copyOf(id) : before.kept.get(id);
      if (kept !== undefined) this.kept.set(id, kept);
    }
  }

  /** The last figure of a node that is not live; null if it is live or the figure is unknown. */
  last(nodeId: number, column: FigureColumn): LastFigure | null {
    const kept = this.kept.get(nodeId);
    if (kept === undefined || Number.isNaN(kept.values[column])) return null;
    return { value: kept.values[column], timeMs: kept.timeMs };
  }

  private copyOf(nodeId: number): Kept {
    const values = FIGURE_COLUMNS.map((column) => [column, this.get(nodeId, column)]);
    return { timeMs: this.frame.time_ms, values: Object.fromEntries(values) as Kept["values"] };
  }

  /** The same figures when no frame follows: all live nodes become stale. */
  silenced(): FleetFigures {
    const { frame } = this;
    const unknown = FLEET_METRICS.map((name) => [name, new Float32Array(frame.node_id.length).fill(Number.NaN)]);
    const health = frame.health.map((code) => (code === LIVE ? STALE : code));
    return new FleetFigures({ ...frame, health, ...Object.fromEntries(unknown) }, this);
  }

  /** A figure; NaN if unknown. */
  get(nodeId: number, column: FigureColumn): number {
    const row = this.rows.get(nodeId);
    const value = row === undefined ? Number.NaN : (this.frame[column][row] as number);
    return value === ABSENT_U32 ? Number.NaN : value;
  }

  health(nodeId: number): Schemas["Health"] {
    const row = this.rows.get(nodeId);
    return (row === undefined ? undefined : HEALTHS[this.frame.health[row] as number]) ?? "new";
  }
}

/** A fleet frame built from a list of nodes, used until the first frame arrives; time_ms is 0. */
export function frameOfNodes(nodes: Schemas["NodeSummary"][]): FleetFrame {
  const cpu = (name: "busiest_cpu" | "softirq_cpu") =>
    Uint32Array.from(nodes, (node) => node.figures?.[name] ?? ABSENT_U32);
  const metrics = FLEET_METRICS.map((name) => [
    name,
    Float32Array.from(nodes, (node) => node.figures?.metrics[name] ?? Number.NaN),
  ]);
  return {
    type: "fleet",
    time_ms: 0,
    node_id: Uint32Array.from(nodes, (node) => node.id),
    health: Uint8Array.from(nodes, (node) => HEALTHS.indexOf(node.health)),
    busiest_cpu: cpu("busiest_cpu"),
    softirq_cpu: cpu("softirq_cpu"),
    ...(Object.fromEntries(metrics) as Record<FleetMetric, Float32Array>),
  };
}

const EMPTY = new FleetFigures(frameOfNodes([]));

/** Stores the latest fleet frame outside React: one update per second for 10,000 nodes. */
class FleetStore {
  private latest = EMPTY;
  private stableAt = 0;
  private stable = EMPTY;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private readonly listeners = new Set<() => void>();

  constructor() {
    liveConnection.on("fleet", (frame) => {
      this.consume(frame);
      clearTimeout(this.silence);
      this.silence = setTimeout(() => this.silenced(), SILENT_MS);
    });
  }

  private silenced(): void {
    this.latest = this.latest.silenced();
    for (const listener of this.listeners) listener();
  }

  consume(frame: FleetFrame): void {
    this.latest = new FleetFigures(frame, this.latest);
    const now = performance.now();
    const isFirst = this.stable.frame.time_ms === 0;
    if (isFirst || now - this.stableAt >= STABLE_MS) {
      this.stable = this.latest;
      this.stableAt = now;
    }
    for (const listener of this.listeners) listener();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (this.latest === EMPTY) {
      const nodes = queryClient.getQueryData(nodesQuery.queryKey);
      if (nodes?.length) this.consume(frameOfNodes(nodes));
    }
    return () => this.listeners.delete(listener);
  };

  readonly getLatest = (): FleetFigures => this.latest;
  readonly getStable = (): FleetFigures => this.stable;
}

export const fleetStore = new FleetStore();

/** What the figures are compared with; null without a comparison, "loading" until it is there. */
export type Before = FleetFigures | "loading" | null;

/** Past figures, which the page shows instead of the live ones, and those that they are compared with. */
export type Shown = { figures: FleetFigures; before: Before };

/** null: the page follows the present. */
export const ShownPast = createContext<Shown | null>(null);

/** The latest figures, updated every second; the past ones of a page that shows the past. */
export function useFigures(): FleetFigures {
  const past = useContext(ShownPast);
  return useSyncExternalStore(fleetStore.subscribe, past === null ? fleetStore.getLatest : () => past.figures);
}

/** Figures that update only every few seconds, for order and membership. */
export function useStableFigures(): FleetFigures {
  const past = useContext(ShownPast);
  return useSyncExternalStore(fleetStore.subscribe, past === null ? fleetStore.getStable : () => past.figures);
}

/** The figures that the shown ones are compared with. */
export function useBefore(): Before {
  return useContext(ShownPast)?.before ?? null;
}
