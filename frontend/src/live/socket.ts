import { useEffect, useEffectEvent, useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import { decodeFrame, type FleetFrame, type FleetSelection, type RatesFrame } from "./frames";

/** Events of the live connection and their payloads. */
export type LiveEvents = {
  change: Schemas["Change"];
  /** The node that the page looks at has changed. */
  node: Schemas["NodeSummary"];
  /** Some nodes have changed, appeared or been deleted. */
  nodes: null;
  /** Id of the node whose topology, inventory or tasks changed. */
  inventory: number;
  /** Id of the node whose evaluations or flows changed; null: policies or rollouts changed. */
  policies: number | null;
  classes: ClassesEvent;
  experiment: Schemas["ExperimentSummary"];
  rates: RatesFrame;
  fleet: FleetFrame;
};

/** A node's report on a policy's service classes. time_ms: in the node's clock. */
export type ClassesEvent = {
  node_id: number;
  policy_id: number;
  time_ms: number;
  reported: NonNullable<Schemas["PolicyClasses"]["reported"]>;
};

/** What a page shows of the fleet: the figures of all nodes that match, by group, and of these nodes one by one. */
export type FleetWatch = FleetSelection & { ids: number[] };

/** Whether a frame answers what a page shows now; one of its former filter may still arrive. */
const answers = (frame: FleetFrame, asked: FleetWatch): boolean =>
  frame.watch !== undefined &&
  frame.watch.q === asked.q &&
  frame.watch.group === asked.group &&
  frame.watch.within === asked.within;

/** State of the live connection. since: Date.now() of the last transition. */
export type LiveState = { status: "connecting" | "connected" | "retrying"; since: number };

type Handler<T extends keyof LiveEvents> = (event: LiveEvents[T]) => void;
type TextFrame =
  | { type: "change"; change: Schemas["Change"] }
  | { type: "node"; node: Schemas["NodeSummary"] }
  | { type: "nodes" }
  | { type: "inventory"; node_id: number }
  | { type: "policies"; node_id: number | null }
  | ({ type: "classes" } & ClassesEvent)
  | { type: "experiment"; experiment: Schemas["ExperimentSummary"] };

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;

/** The connection to /api/v1/live: reconnects with back-off and renews its subscriptions. */
export class LiveConnection {
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private current: LiveState = { status: "connecting", since: Date.now() };
  private readonly stateListeners = new Set<() => void>();
  private readonly handlers: { [T in keyof LiveEvents]: Set<Handler<T>> } = {
    change: new Set(),
    node: new Set(),
    nodes: new Set(),
    inventory: new Set(),
    policies: new Set(),
    classes: new Set(),
    experiment: new Set(),
    rates: new Set(),
    fleet: new Set(),
  };
  private nodeSubscriptions: number[] = [];
  private fleetSubscriptions: FleetWatch[] = [];

  start(): void {
    if (this.socket !== null) return;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/v1/live`);
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.failures = 0;
      this.sendSubscription();
      this.setStatus("connected");
    };
    socket.onmessage = (message: MessageEvent<string | ArrayBuffer>) => this.receive(message.data);
    socket.onclose = () => {
      this.socket = null;
      this.setStatus("retrying");
      // Jitter spreads the reconnects after a backend restart.
      const delayMs = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures) * (0.5 + Math.random() / 2);
      this.failures += 1;
      this.timer = setTimeout(() => this.start(), delayMs);
    };
  }

  stop(): void {
    clearTimeout(this.timer);
    if (this.socket === null) return;
    this.socket.onclose = null;
    this.socket.onmessage = null;
    this.socket.close();
    this.socket = null;
  }

  /** Registers a handler for a type of event; returns the function that removes it. */
  on<T extends keyof LiveEvents>(type: T, handler: Handler<T>): () => void {
    this.handlers[type].add(handler);
    return () => this.handlers[type].delete(handler);
  }

  /** Subscribes to one node's rates; returns the unsubscribe function. The newest subscription is active. */
  subscribeNode(nodeId: number): () => void {
    this.nodeSubscriptions.push(nodeId);
    this.sendSubscription();
    return () => {
      this.nodeSubscriptions.splice(this.nodeSubscriptions.lastIndexOf(nodeId), 1);
      this.sendSubscription();
    };
  }

  /** Subscribes to figures of the fleet; returns the unsubscribe function. The newest subscription is active. */
  subscribeFleet(watch: FleetWatch): () => void {
    this.fleetSubscriptions.push(watch);
    this.sendSubscription();
    return () => {
      this.fleetSubscriptions.splice(this.fleetSubscriptions.lastIndexOf(watch), 1);
      this.sendSubscription();
    };
  }

  readonly state = (): LiveState => this.current;

  readonly onState = (listener: () => void): (() => void) => {
    this.stateListeners.add(listener);
    return () => this.stateListeners.delete(listener);
  };

  private sendSubscription(): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    const [node, fleet] = [this.nodeSubscriptions.at(-1) ?? null, this.fleetSubscriptions.at(-1) ?? null];
    this.socket.send(JSON.stringify({ node, fleet }));
  }

  private setStatus(status: LiveState["status"]): void {
    if (status === this.current.status) return;
    this.current = { status, since: Date.now() };
    for (const listener of this.stateListeners) listener();
  }

  private receive(data: string | ArrayBuffer): void {
    if (data instanceof ArrayBuffer) {
      const frame = decodeFrame(data);
      const asked = this.fleetSubscriptions.at(-1);
      if (frame.type === "rates") this.emit("rates", frame);
      else if (asked !== undefined && answers(frame, asked)) this.emit("fleet", frame);
      return;
    }
    const frame = JSON.parse(data) as TextFrame;
    if (frame.type === "change") this.emit("change", frame.change);
    else if (frame.type === "node") this.emit("node", frame.node);
    else if (frame.type === "nodes") this.emit("nodes", null);
    else if (frame.type === "inventory") this.emit("inventory", frame.node_id);
    else if (frame.type === "policies") this.emit("policies", frame.node_id);
    else if (frame.type === "classes") this.emit("classes", frame);
    else if (frame.type === "experiment") this.emit("experiment", frame.experiment);
  }

  private emit<T extends keyof LiveEvents>(type: T, event: LiveEvents[T]): void {
    for (const handler of this.handlers[type]) handler(event);
  }
}

export const liveConnection = new LiveConnection();

/** Registers a handler for a type of live event while the component is mounted. */
export function useLive<T extends keyof LiveEvents>(type: T, handler: Handler<T>): void {
  const latest = useEffectEvent(handler);
  useEffect(() => liveConnection.on(type, (event) => latest(event)), [type]);
}

/** Subscribes to one node's rates while the component is mounted; null: none. */
export function useNodeSubscription(nodeId: number | null): void {
  useEffect(() => (nodeId === null ? undefined : liveConnection.subscribeNode(nodeId)), [nodeId]);
}

export function useLiveState(): LiveState {
  return useSyncExternalStore(liveConnection.onState, liveConnection.state);
}
