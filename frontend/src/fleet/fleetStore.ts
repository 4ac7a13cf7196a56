import { useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import { nodesQuery, queryClient } from "../api/queries";
import { type FleetFrame, HEALTHS, UNKNOWN_U32 } from "../live/frames";
import { live } from "../live/socket";
import type { FigureColumn } from "./search";

/** Order and membership follow the figures this seldom, so that rows can be read and clicked. */
const SETTLE_MS = 5_000;

/** The newest figures of all nodes, looked up by node id. */
export class FleetFigures {
  readonly frame: FleetFrame;
  private readonly rows: Map<number, number>;

  constructor(frame: FleetFrame) {
    this.frame = frame;
    this.rows = new Map(Array.from(frame.node_id, (id, row) => [id, row]));
  }

  /** A figure, or NaN where it is not known. */
  get(nodeId: number, column: FigureColumn): number {
    const row = this.rows.get(nodeId);
    const value = row === undefined ? Number.NaN : (this.frame[column][row] as number);
    return value === UNKNOWN_U32 ? Number.NaN : value;
  }

  health(nodeId: number): Schemas["Health"] {
    const row = this.rows.get(nodeId);
    return (row === undefined ? undefined : HEALTHS[this.frame.health[row] as number]) ?? "new";
  }
}

/** The frame that a list of nodes would have been, for the moment before the first frame arrives; its time is 0. */
export function frameOfNodes(nodes: Schemas["NodeSummary"][]): FleetFrame {
  const figure = (name: Exclude<keyof Schemas["Figures"], "time">) =>
    Float32Array.from(nodes, (node) => node.figures?.[name] ?? Number.NaN);
  const cpu = (name: "busiest_cpu" | "softirq_cpu") =>
    Uint32Array.from(nodes, (node) => node.figures?.[name] ?? UNKNOWN_U32);
  return {
    type: "fleet",
    time_ms: 0,
    node_id: Uint32Array.from(nodes, (node) => node.id),
    health: Uint8Array.from(nodes, (node) => HEALTHS.indexOf(node.health)),
    busiest_cpu: cpu("busiest_cpu"),
    softirq_cpu: cpu("softirq_cpu"),
    busiest_percent: figure("busiest_percent"),
    softirq_percent: figure("softirq_percent"),
    rx_bytes_per_s: figure("rx_bytes_per_s"),
    tx_bytes_per_s: figure("tx_bytes_per_s"),
    interrupts_per_s: figure("interrupts_per_s"),
    dropped_per_s: figure("dropped_per_s"),
    squeezed_per_s: figure("squeezed_per_s"),
    rtt_p99_us: figure("rtt_p99_us"),
  };
}

const EMPTY = new FleetFigures(frameOfNodes([]));

/** Holds the newest fleet frame outside of React, so that one second of 10,000 nodes is one change. */
class FleetStore {
  private newest = EMPTY;
  private settledAt = 0;
  private settled = EMPTY;
  private readonly listeners = new Set<() => void>();

  constructor() {
    live.on("fleet", (frame) => this.take(frame));
  }

  take(frame: FleetFrame): void {
    this.newest = new FleetFigures(frame);
    const now = performance.now();
    const isFirst = this.settled.frame.time_ms === 0;
    if (isFirst || now - this.settledAt >= SETTLE_MS) {
      this.settled = this.newest;
      this.settledAt = now;
    }
    for (const listener of this.listeners) listener();
  }

  readonly subscribe = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    if (this.newest === EMPTY) {
      const nodes = queryClient.getQueryData(nodesQuery.queryKey);
      if (nodes?.length) this.take(frameOfNodes(nodes));
    }
    return () => this.listeners.delete(listener);
  };

  readonly now = (): FleetFigures => this.newest;
  readonly calm = (): FleetFigures => this.settled;
}

export const fleet = new FleetStore();

/** The figures of this second. */
export function useFigures(): FleetFigures {
  return useSyncExternalStore(fleet.subscribe, fleet.now);
}

/** The figures of a few seconds ago at most, for what should not jump: order and membership. */
export function useSettledFigures(): FleetFigures {
  return useSyncExternalStore(fleet.subscribe, fleet.calm);
}
