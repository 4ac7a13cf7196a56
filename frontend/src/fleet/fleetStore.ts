import { createContext, useContext, useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import { ABSENT_U32, HEALTHS } from "../api/constants";
import { FLEET_METRICS, type FleetMetric } from "../lib/metrics";
import type { FleetFrame } from "../live/frames";
import { type FleetWatch, liveConnection } from "../live/socket";
import type { Moment } from "./pastTime";
import type { FigureColumn } from "./search";

/** Without a frame for this time, in ms, all figures are stale. */
const SILENT_MS = 3_000;

const LIVE = HEALTHS.indexOf("live");
const STALE = HEALTHS.indexOf("stale");

/** A figure that is not up to date, and its time. */
export type LastFigure = { value: number; timeMs: number };
type Totals = Schemas["Totals"];
type Kept = { timeMs: number; values: Record<FigureColumn, number> };
const FIGURE_COLUMNS: FigureColumn[] = [...FLEET_METRICS, "busiest_cpu", "softirq_cpu"];

/** Figures of the nodes of one frame, by node id, and the last known ones of nodes that are not live. */
export class FleetFigures {
  readonly frame: FleetFrame;
  /** The past minute or hour that the figures are of; null for the present. */
  readonly moment: Moment | null;
  private readonly rows: Map<number, number>;
  /** The last figures of nodes that are not live; copies, because a reference would keep the whole frame. */
  private readonly kept = new Map<number, Kept>();

  constructor(frame: FleetFrame, before?: FleetFigures, moment: Moment | null = null) {
    this.frame = frame;
    this.moment = moment;
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

  has(nodeId: number): boolean {
    return this.rows.has(nodeId);
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

/** Figures of all nodes that match, and the time of those that are of live nodes. */
export type Summary = {
  totals: Totals;
  groups: Schemas["Group"][];
  lastLive: { totals: Totals; timeMs: number } | null;
};

/** Without a frame for a while: live nodes are stale, and nothing is known of them. */
function silencedTotals(totals: Totals): Totals {
  const { live, stale } = totals.health as Required<Totals["health"]>;
  const unknown = (figures: object) => Object.fromEntries(Object.keys(figures).map((name) => [name, null]));
  return {
    ...totals,
    health: { ...totals.health, live: 0, stale: (live ?? 0) + (stale ?? 0) },
    with_data: 0,
    hot: null,
    sums: unknown(totals.sums),
    worst: unknown(totals.worst),
  };
}

/** Stores the latest fleet frame outside React. */
class FleetStore {
  private latest = EMPTY;
  private summary: Summary | null = null;
  private key = "";
  private watchers = 0;
  private silence: ReturnType<typeof setTimeout> | undefined;
  private readonly listeners = new Set<() => void>();

  constructor() {
    liveConnection.on("fleet", (frame) => this.consume(frame));
  }

  /** Subscribes to frames about nodes; returns the unsubscribe function, after which silence says nothing. */
  watch(nodes: FleetWatch): () => void {
    const stop = liveConnection.subscribeFleet(nodes);
    this.watchers += 1;
    if (this.silence !== undefined) this.awaitFrame();
    return () => {
      this.watchers -= 1;
      this.awaitFrame();
      stop();
    };
  }

  private awaitFrame(): void {
    clearTimeout(this.silence);
    if (this.watchers > 0) this.silence = setTimeout(() => this.silenced(), SILENT_MS);
  }

  private silenced(): void {
    this.latest = this.latest.silenced();
    if (this.summary !== null) {
      const totals = silencedTotals(this.summary.totals);
      const groups = this.summary.groups.map((group) => ({ ...group, totals: silencedTotals(group.totals) }));
      this.summary = { ...this.summary, totals, groups };
    }
    this.tell();
  }

  private tell(): void {
    for (const listener of this.listeners) listener();
  }

  consume(frame: FleetFrame): void {
    this.awaitFrame();
    this.latest = new FleetFigures(frame, this.latest);
    if (frame.totals !== undefined) this.summarize(frame.totals, frame.groups ?? [], frame.time_ms);
    this.tell();
  }

  private summarize(totals: Totals, groups: Schemas["Group"][], timeMs: number): void {
    const lastLive = totals.health.live ? { totals, timeMs } : (this.summary?.lastLive ?? null);
    this.summary = { totals, groups, lastLive };
  }

  /** Takes the answer about some nodes; frames about them follow. key: says which nodes match. */
  readonly show = (answer: Schemas["FleetAnswer"], key: string): void => {
    const rows = [...new Map([...answer.rows, ...answer.hot_spots].map((row) => [row.id, row])).values()];
    if (key !== this.key) this.summary = null;
    this.key = key;
    if (this.summary === null) this.summarize(answer.totals, answer.groups, Date.now());
    if (!rows.every(({ id }) => this.latest.has(id))) this.latest = new FleetFigures(frameOfNodes(rows), this.latest);
    this.tell();
  };

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  readonly getLatest = (): FleetFigures => this.latest;
  readonly getSummary = (): Summary | null => this.summary;
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

/** The present figures of all nodes that match, updated every second; null before the first answer. */
export const useSummary = (): Summary | null => useSyncExternalStore(fleetStore.subscribe, fleetStore.getSummary);

/** The figures that the shown ones are compared with. */
export function useBefore(): Before {
  return useContext(ShownPast)?.before ?? null;
}
