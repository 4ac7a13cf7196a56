import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { HeatBlock, NO_DATA } from "../../charts/heatBlock";
import type { HeatShare } from "../cpuShares";
import { frame } from "../testData";
import { LiveWindow } from "./liveWindow";

const NOW = 1_000_000;
const busy = (timeMs: number, value: number) => frame({ time_ms: timeMs, shares: { busy: [value] } });

beforeEach(() => vi.useFakeTimers({ now: NOW }));
afterEach(() => vi.useRealTimers());

test("a window covers its span up to the current time in the node's clock", () => {
  const window = new LiveWindow(1, 60, 1, 5000);
  expect(window.now()).toBe(NOW + 5000);
  const { from, to } = window.range();
  expect(to - from).toBe(60_000);
  expect(to).toBeGreaterThan(NOW + 5000);
});

test("only frames of the last 5 s are averaged", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  for (const second of [-7, -5, -4, 0]) window.push(busy(NOW + second * 1000, 20));
  expect(window.recent.map(({ time_ms }) => time_ms - NOW)).toEqual([-4000, 0]);
  expect(window.last?.time_ms).toBe(NOW);
});

test("the stated load is that of the first frame, then the mean of every 5 s", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  const stated = [20, 40, 60, 80, 100, 120].map((value, second) => {
    window.push(busy(NOW + second * 1000, value));
    return window.load().shares.busy[0];
  });
  expect(stated).toEqual([20, 20, 20, 20, 20, 80]);
});

test.each([30_000, -60_000])("the first frame states the node's clock: %i ms from the browser's", (ms) => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(busy(NOW + ms, 20));
  expect(window.now()).toBe(NOW + ms);
});

/** now() less the browser's clock after frames, each with its delay and when it arrives. */
const clockAfter = (frames: [delayMs: number, afterMs: number][]) => {
  const window = new LiveWindow(1, 60, 1, 0);
  for (const [delayMs, afterMs] of frames) {
    vi.setSystemTime(NOW + afterMs);
    window.push(busy(NOW + afterMs - delayMs, 20));
  }
  return window.now() - Date.now();
};
const seconds = (count: number, delayMs: number, firstMs = 1000) =>
  Array.from({ length: count }, (_, at): [number, number] => [delayMs, firstMs + 1000 * at]);

test.each<[string, [number, number][], number]>([
  ["a late frame", [...seconds(2, 0), [20_000, 3000]], 0],
  [
    "many late frames at once",
    [[0, 0], ...Array.from({ length: 20 }, (_, at): [number, number] => [20_000 - 1000 * at, 20_000])],
    -1000,
  ],
  ["5 s of late frames, then one in time", [...seconds(2, 0), ...seconds(5, 20_000, 3000), [0, 8000]], 0],
  ["late frames for longer than 5 s: the clock was set back", [...seconds(2, 0), ...seconds(6, 60_000, 3000)], -60_000],
])("the node's clock after %s", (_, frames, expected) => {
  expect(clockAfter(frames)).toBe(expected);
});

test("frames from before the node's clock was set back are not averaged with those after", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(busy(NOW, 20));
  window.push(busy(NOW - 60_000, 100));
  expect(window.recent.map(({ time_ms }) => time_ms)).toEqual([NOW - 60_000]);
  expect(window.load().shares.busy[0]).toBe(100);
});

test("without frames the window advances without data, and the last frame stays, marked stale after 3 s", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(busy(NOW, 20));
  const before = window.range().to;
  vi.setSystemTime(NOW + 2000);
  window.tick();
  expect([window.range().to, window.staleSince()]).toEqual([before, null]);
  vi.setSystemTime(NOW + 4000);
  window.tick();
  expect([window.range().to, window.staleSince(), window.last?.time_ms]).toEqual([before + 4000, NOW, NOW]);
  window.push(busy(NOW + 4000, 20));
  expect(window.staleSince()).toBeNull();
});

test("a node that samples every 5 s is stale after three intervals", () => {
  const window = new LiveWindow(1, 60, 5, 0);
  window.push(frame({ time_ms: NOW, duration_s: 5 }));
  const staleAfter = (ms: number) => {
    vi.setSystemTime(NOW + ms);
    window.tick();
    return window.staleSince();
  };
  expect([staleAfter(14_000), staleAfter(16_000)]).toEqual([null, NOW]);
});

test("a window of another span takes over the newest frames, unless it has its own", () => {
  const [before, after] = [new LiveWindow(1, 60, 1, 0), new LiveWindow(1, 3600, 1, 0)];
  before.push(busy(NOW, 20));
  after.follow(before);
  expect(after.last?.time_ms).toBe(NOW);
  before.push(busy(NOW + 1000, 20));
  after.follow(before);
  expect(after.last?.time_ms).toBe(NOW);
});

test("listeners are not called while a range is drawn, and once afterwards", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  const listener = vi.fn();
  const stop = window.on(listener);
  window.hold(true);
  window.push(busy(NOW, 20));
  expect([listener.mock.calls.length, window.version()]).toEqual([0, 0]);
  window.hold(false);
  expect([listener.mock.calls.length, window.version()]).toEqual([1, 1]);
  stop();
  window.push(busy(NOW + 1000, 20));
  expect(listener).toHaveBeenCalledTimes(1);
});

test("the cells of every share keep what live samples showed, and history fills only its own", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(frame({ time_ms: NOW, shares: { busy: [20], softirq: [8] } }));
  const at = (share: HeatShare, timeMs: number) => window.heat(share).at(0, timeMs);
  expect([at("busy", NOW - 500), at("softirq", NOW - 500), at("irq", NOW - 500)]).toEqual([20, 8, NO_DATA]);
  const history = new HeatBlock(1, 60, 1000, NOW - 10_000);
  history.cells.fill(6);
  window.fillHeat("softirq", history);
  expect([at("busy", NOW - 20_000), at("softirq", NOW - 20_000)]).toEqual([NO_DATA, 6]);
  expect(at("softirq", NOW - 500)).toBe(8);
});
