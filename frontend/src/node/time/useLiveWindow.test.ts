import { act, renderHook } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../../api/client";
import type { RatesFrame } from "../../live/frames";
import { liveConnection } from "../../live/socket";
import { frame } from "../testData";
import { useLiveWindow } from "./useLiveWindow";

const NOW = 1_000_000;

beforeEach(() => vi.useFakeTimers({ now: NOW }));
afterEach(() => vi.useRealTimers());

/** The hook over 60 s of a node, and a function that advances time by ms and then delivers a frame of this delay. */
function opened() {
  let receive: (event: RatesFrame) => void = () => undefined;
  vi.spyOn(liveConnection, "on").mockImplementation((_, handler) => {
    receive = handler as typeof receive;
    return () => undefined;
  });
  const node = { id: frame({}).node_id, interval_s: 1, clock_skew_ms: 0 } as Schemas["Node"];
  const { result } = renderHook(() => useLiveWindow(node, 1, 60, "busy"));
  const arrive = (ms: number, delayMs = 0) => {
    act(() => void vi.advanceTimersByTime(ms));
    act(() => receive(frame({ time_ms: Date.now() - delayMs, shares: { busy: [20] } })));
    return result.current.behind;
  };
  return { result, arrive };
}

test("history is read again once the first frame has arrived, and not after other ones", () => {
  const { result, arrive } = opened();
  const before = result.current.behind;
  const first = arrive(0);
  expect(first).not.toBe(before);
  expect(arrive(1000)).toBe(first);
});

test("history is read again when frames arrive after a silence, and once more 10 s later", () => {
  const { arrive } = opened();
  arrive(0);
  const before = arrive(1000);
  const back = arrive(20_000);
  expect(back).not.toBe(before);
  const later = Array.from({ length: 15 }, () => arrive(1000));
  expect(later[8]).toBe(back);
  expect(later[9]).not.toBe(back);
  expect(later[14]).toBe(later[9]);
});

test("history is read once more 10 s later, too, where the page was opened while the node was away", () => {
  const { arrive } = opened();
  const back = arrive(20_000);
  const later = Array.from({ length: 10 }, () => arrive(1000));
  expect(later.map((behind) => behind === back)).toEqual([...Array(9).fill(true), false]);
});

test("where the browser's clock is a minute ahead, the window ends at the node's time", () => {
  const { result, arrive } = opened();
  arrive(0, 60_000);
  const { next, behind, window } = result.current;
  expect(next).not.toBe(window);
  expect([next.now(), behind.to, next.last?.time_ms]).toEqual([NOW - 60_000, NOW - 60_000, NOW - 60_000]);
  expect(next.range().to).toBeLessThanOrEqual(NOW - 60_000 + 1000);
  arrive(1000, 60_000);
  expect(result.current.next).toBe(next);
});
