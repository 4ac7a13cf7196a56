import { afterEach, beforeEach, expect, test, vi } from "vitest";
import { frame } from "../testData";
import { LiveWindow } from "./liveWindow";

const NOW = 1_000_000;
const busy = (timeMs: number, value: number) => frame({ time_ms: timeMs, shares: { busy: [value] } });

beforeEach(() => vi.useFakeTimers({ now: NOW }));
afterEach(() => vi.useRealTimers());

test("a window covers its span up to the node's own present", () => {
  const window = new LiveWindow(1, 60, 1, 5000);
  expect(window.now()).toBe(NOW + 5000);
  const { from, to } = window.range();
  expect(to - from).toBe(60_000);
  expect(to).toBeGreaterThan(NOW + 5000);
});

test("only the frames of the last five seconds are averaged over", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  for (const second of [-7, -5, -4, 0]) window.push(busy(NOW + second * 1000, 20), null);
  expect(window.recent.map(({ time_ms }) => time_ms - NOW)).toEqual([-4000, 0]);
  expect(window.last?.time_ms).toBe(NOW);
});

test("a fresh frame corrects the node's clock, and one that is sent late does not", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(busy(NOW + 30_000, 20), null);
  expect(window.now()).toBe(NOW + 30_000);
  window.push(busy(NOW - 20_000, 20), null);
  expect(window.now()).toBe(NOW + 30_000);
});

test("after silence the window moves on without data, and forgets the last frames", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  window.push(busy(NOW, 20), null);
  const before = window.range().to;
  vi.setSystemTime(NOW + 2000);
  window.tick();
  expect(window.range().to).toBe(before);
  vi.setSystemTime(NOW + 10_000);
  window.tick();
  expect(window.range().to).toBe(before + 10_000);
  expect(window.last).toBeUndefined();
});

test("while a range is drawn listeners hear nothing, and once when it is released", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  const listener = vi.fn();
  const stop = window.on(listener);
  window.hold(true);
  window.push(busy(NOW, 20), null);
  expect([listener.mock.calls.length, window.version()]).toEqual([0, 0]);
  window.hold(false);
  expect([listener.mock.calls.length, window.version()]).toEqual([1, 1]);
  stop();
  window.push(busy(NOW + 1000, 20), null);
  expect(listener).toHaveBeenCalledTimes(1);
});

test("another share empties the cells, the same one keeps them", () => {
  const window = new LiveWindow(1, 60, 1, 0);
  const { heat } = window;
  window.show("busy");
  expect(window.heat).toBe(heat);
  window.show("softirq");
  expect(window.heat).not.toBe(heat);
});
