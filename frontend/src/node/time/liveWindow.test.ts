import { afterEach, beforeEach, expect, test, vi } from "vitest";
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

test("a recent frame corrects the node's clock, a late one does not", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(busy(NOW + 30_000, 20));
  expect(window.now()).toBe(NOW + 30_000);
  window.push(busy(NOW - 20_000, 20));
  expect(window.now()).toBe(NOW + 30_000);
});

test("without frames the window advances without data and drops the last frames", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(busy(NOW, 20));
  const before = window.range().to;
  vi.setSystemTime(NOW + 2000);
  window.tick();
  expect(window.range().to).toBe(before);
  vi.setSystemTime(NOW + 10_000);
  window.tick();
  expect(window.range().to).toBe(before + 10_000);
  expect(window.last).toBeUndefined();
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

test("another share clears the cells, the same one does not", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  const { heat } = window;
  window.show("busy");
  expect(window.heat).toBe(heat);
  window.show("softirq");
  expect(window.heat).not.toBe(heat);
});
