import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { LiveConnection } from "./socket";

/** A WebSocket that a test opens, feeds and closes. */
class FakeSocket {
  static readonly OPEN = 1;
  static opened: FakeSocket[] = [];
  readyState = 0;
  binaryType = "";
  sent: unknown[] = [];
  onopen: (() => void) | null = null;
  onclose: (() => void) | null = null;
  onmessage: ((message: { data: unknown }) => void) | null = null;

  constructor() {
    FakeSocket.opened.push(this);
  }
  open(): void {
    this.readyState = FakeSocket.OPEN;
    this.onopen?.();
  }
  close(): void {
    this.readyState = 3;
    this.onclose?.();
  }
  send(text: string): void {
    this.sent.push(JSON.parse(text));
  }
}

beforeEach(() => {
  vi.useFakeTimers();
  vi.stubGlobal("WebSocket", FakeSocket);
  vi.spyOn(Math, "random").mockReturnValue(1);
  FakeSocket.opened = [];
});
afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
  vi.restoreAllMocks();
});

const WATCH = { q: "web", group: "label:rack", within: null, ids: [1, 2] };
const last = () => FakeSocket.opened.at(-1) as FakeSocket;

test("subscriptions are sent when the connection opens and after each reconnect", () => {
  const live = new LiveConnection();
  live.start();
  live.subscribeNode(7);
  live.subscribeFleet(WATCH);
  expect(last().sent).toEqual([]);
  last().open();
  expect(last().sent).toEqual([{ node: 7, fleet: WATCH }]);
  last().close();
  vi.advanceTimersByTime(500);
  last().open();
  expect(FakeSocket.opened).toHaveLength(2);
  expect(last().sent).toEqual([{ node: 7, fleet: WATCH }]);
});

test("the newest node subscription is active; when it ends, the previous one is again", () => {
  const live = new LiveConnection();
  live.start();
  last().open();
  live.subscribeNode(7);
  const end = live.subscribeNode(9);
  end();
  expect(last().sent.slice(1)).toEqual([
    { node: 7, fleet: null },
    { node: 9, fleet: null },
    { node: 7, fleet: null },
  ]);
});

test("each failure doubles the retry delay up to 10 s, and a connection resets it", () => {
  const live = new LiveConnection();
  live.start();
  for (const waitMs of [500, 1000, 2000, 4000, 8000, 10_000, 10_000]) {
    const connections = FakeSocket.opened.length;
    last().close();
    vi.advanceTimersByTime(waitMs - 1);
    expect(FakeSocket.opened).toHaveLength(connections);
    vi.advanceTimersByTime(1);
    expect(FakeSocket.opened).toHaveLength(connections + 1);
  }
  last().open();
  last().close();
  vi.advanceTimersByTime(500);
  expect(FakeSocket.opened).toHaveLength(9);
});

test("a stopped connection stays closed", () => {
  const live = new LiveConnection();
  live.start();
  live.stop();
  vi.advanceTimersByTime(60_000);
  expect(FakeSocket.opened).toHaveLength(1);
});

test("an event reaches the handlers of its type until they are removed", () => {
  const live = new LiveConnection();
  const [inventory, policies] = [vi.fn(), vi.fn()];
  live.on("policies", policies);
  const remove = live.on("inventory", inventory);
  live.start();
  const send = (frame: object) => last().onmessage?.({ data: JSON.stringify(frame) });
  send({ type: "inventory", node_id: 3 });
  send({ type: "policies", node_id: null });
  remove();
  send({ type: "inventory", node_id: 4 });
  expect(inventory.mock.calls).toEqual([[3]]);
  expect(policies.mock.calls).toEqual([[null]]);
});

/** A fleet frame without nodes, as the backend builds it. */
function fleetFrame(header: object): ArrayBuffer {
  const json = new TextEncoder().encode(JSON.stringify({ type: "fleet", columns: [], ...header }));
  const buffer = new ArrayBuffer(4 + json.length);
  new DataView(buffer).setUint32(0, json.length, true);
  new Uint8Array(buffer, 4).set(json);
  return buffer;
}

test("a fleet frame of a former filter is ignored", () => {
  const live = new LiveConnection();
  const shown: number[] = [];
  live.on("fleet", (frame) => shown.push(frame.time_ms));
  live.start();
  const { ids: _, ...watch } = WATCH;
  const send = (timeMs: number, changes: object) =>
    last().onmessage?.({ data: fleetFrame({ time_ms: timeMs, watch: { ...watch, ...changes } }) });
  send(1, {});
  const end = live.subscribeFleet(WATCH);
  send(2, {});
  send(3, { q: "db" });
  send(4, { group: "kernel" });
  send(5, { within: "r1" });
  end();
  send(6, {});
  expect(shown).toEqual([2]);
});
