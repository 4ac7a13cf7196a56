import { useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import { ABSENT_U32, HEALTHS } from "../api/constants";
import { nodesQuery, queryClient } from "../api/queries";
import { FLEET_METRICS, type FleetMetric } from "../lib/metrics";
import type { FleetFrame } from "../live/frames";
import { liveConnection } from "../live/socket";
import type { FigureColumn } from "./search";

/** Minimum time between two updates of order and membership, in ms: rows stay readable and clickable. */
const STABLE_MS = 5_000;

/** Figures of all nodes of one frame, by node id. */
export class FleetFigures {
  readonly frame: FleetFrame;
  private readonly rows: Map<number, number>;

  constructor(frame: FleetFrame) {
    this.frame = frame;
    this.rows = new Map(Array.from(frame.node_id, (id, row) => [id, row]));
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
  private readonly listeners = new Set<() => void>();

  constructor() {
    liveConnection.on("fleet", (frame) => this.consume(frame));
  }

  consume(frame: FleetFrame): void {
    this.latest = new FleetFigures(frame);
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

/** The latest figures, updated every second. */
export function useFigures(): FleetFigures {
  return useSyncExternalStore(fleetStore.subscribe, fleetStore.getLatest);
}

/** Figures that update only every few seconds, for order and membership. */
export function useStableFigures(): FleetFigures {
  return useSyncExternalStore(fleetStore.subscribe, fleetStore.getStable);
}
