import { useEffect, useEffectEvent, useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import { decodeFrame, type FleetFrame, type RatesFrame } from "./frames";

/** What the backend tells without being asked again. */
export type LiveEvents = {
  change: Schemas["Change"];
  node: Schemas["NodeSummary"];
  /** The node whose topology, inventory or tasks changed: fetch it again. */
  inventory: number;
  /** What a node evaluated from policies changed, or its flows; null: policies or rollouts did. Fetch them again. */
  policies: number | null;
  classes: ClassesTold;
  experiment: Schemas["ExperimentSummary"];
  rates: RatesFrame;
  fleet: FleetFrame;
};

/** What a node's agent has just told of a policy's service classes. time_ms: of the node's clock. */
export type ClassesTold = {
  node_id: number;
  policy_id: number;
  time_ms: number;
  told: NonNullable<Schemas["PolicyClasses"]["told"]>;
};

/** since: when (Date.now()) it became so. */
export type LiveState = { status: "connecting" | "connected" | "retrying"; since: number };

type Handler<T extends keyof LiveEvents> = (event: LiveEvents[T]) => void;
type TextFrame =
  | { type: "change"; change: Schemas["Change"] }
  | { type: "node"; node: Schemas["NodeSummary"] }
  | { type: "inventory"; node_id: number }
  | { type: "policies"; node_id: number | null }
  | ({ type: "classes" } & ClassesTold)
  | { type: "experiment"; experiment: Schemas["ExperimentSummary"] };

const FIRST_RETRY_MS = 500;
const LAST_RETRY_MS = 10_000;

/** One connection to /api/live that comes back by itself and remembers what was wanted. */
export class Live {
  private socket: WebSocket | null = null;
  private timer: ReturnType<typeof setTimeout> | undefined;
  private failures = 0;
  private current: LiveState = { status: "connecting", since: Date.now() };
  private readonly stateListeners = new Set<() => void>();
  private readonly handlers: { [T in keyof LiveEvents]: Set<Handler<T>> } = {
    change: new Set(),
    node: new Set(),
    inventory: new Set(),
    policies: new Set(),
    classes: new Set(),
    experiment: new Set(),
    rates: new Set(),
    fleet: new Set(),
  };
  private nodes: number[] = [];
  private fleets = 0;

  start(): void {
    if (this.socket !== null) return;
    const socket = new WebSocket(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/api/live`);
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onopen = () => {
      this.failures = 0;
      this.sendWish();
      this.setStatus("connected");
    };
    socket.onmessage = (message: MessageEvent<string | ArrayBuffer>) => this.receive(message.data);
    socket.onclose = () => {
      this.socket = null;
      this.setStatus("retrying");
      // Jitter, so that a restarted backend does not meet all browsers at once.
      const wait = Math.min(LAST_RETRY_MS, FIRST_RETRY_MS * 2 ** this.failures) * (0.5 + Math.random() / 2);
      this.failures += 1;
      this.timer = setTimeout(() => this.start(), wait);
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

  /** Calls handler for every event of a type until the returned function is called. */
  on<T extends keyof LiveEvents>(type: T, handler: Handler<T>): () => void {
    this.handlers[type].add(handler);
    return () => this.handlers[type].delete(handler);
  }

  /** Asks for one node's rates until the returned function is called; the last asked for counts. */
  wantNode(nodeId: number): () => void {
    this.nodes.push(nodeId);
    this.sendWish();
    return () => {
      this.nodes.splice(this.nodes.lastIndexOf(nodeId), 1);
      this.sendWish();
    };
  }

  /** Asks for the fleet's figures until the returned function is called. */
  wantFleet(): () => void {
    this.fleets += 1;
    this.sendWish();
    return () => {
      this.fleets -= 1;
      this.sendWish();
    };
  }

  readonly state = (): LiveState => this.current;

  readonly onState = (listener: () => void): (() => void) => {
    this.stateListeners.add(listener);
    return () => this.stateListeners.delete(listener);
  };

  private sendWish(): void {
    if (this.socket?.readyState !== WebSocket.OPEN) return;
    this.socket.send(JSON.stringify({ node: this.nodes.at(-1) ?? null, fleet: this.fleets > 0 }));
  }

  private setStatus(status: LiveState["status"]): void {
    if (status === this.current.status) return;
    this.current = { status, since: Date.now() };
    for (const listener of this.stateListeners) listener();
  }

  private receive(data: string | ArrayBuffer): void {
    if (data instanceof ArrayBuffer) {
      const frame = decodeFrame(data);
      if (frame.type === "rates") this.emit("rates", frame);
      else this.emit("fleet", frame);
      return;
    }
    const frame = JSON.parse(data) as TextFrame;
    if (frame.type === "change") this.emit("change", frame.change);
    else if (frame.type === "node") this.emit("node", frame.node);
    else if (frame.type === "inventory") this.emit("inventory", frame.node_id);
    else if (frame.type === "policies") this.emit("policies", frame.node_id);
    else if (frame.type === "classes") this.emit("classes", frame);
    else if (frame.type === "experiment") this.emit("experiment", frame.experiment);
  }

  private emit<T extends keyof LiveEvents>(type: T, event: LiveEvents[T]): void {
    for (const handler of this.handlers[type]) handler(event);
  }
}

export const live = new Live();

/** Calls handler for every live event of a type while the component is mounted. */
export function useLive<T extends keyof LiveEvents>(type: T, handler: Handler<T>): void {
  const latest = useEffectEvent(handler);
  useEffect(() => live.on(type, (event) => latest(event)), [type]);
}

/** Asks for one node's rates while the component is mounted; null asks for none. */
export function useWantNode(nodeId: number | null): void {
  useEffect(() => (nodeId === null ? undefined : live.wantNode(nodeId)), [nodeId]);
}

/** Asks for the fleet's figures while the component is mounted. */
export function useWantFleet(): void {
  useEffect(() => live.wantFleet(), []);
}

export function useLiveState(): LiveState {
  return useSyncExternalStore(live.onState, live.state);
}
