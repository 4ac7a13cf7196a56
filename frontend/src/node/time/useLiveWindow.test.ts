import { act, renderHook } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import type { Schemas } from "../../api/client";
import type { RatesFrame } from "../../live/frames";
import { liveConnection } from "../../live/socket";
import { frame } from "../testData";
import { useLiveWindow } from "./useLiveWindow";

test("history is read again once the first frame has arrived, and not after other ones", () => {
  let receive: (event: RatesFrame) => void = () => undefined;
  vi.spyOn(liveConnection, "on").mockImplementation((_, handler) => {
    receive = handler as typeof receive;
    return () => undefined;
  });
  const first = frame({ time_ms: Date.now(), shares: { busy: [20] } });
  const node = { id: first.node_id, interval_s: 1, clock_skew_ms: 0 } as Schemas["Node"];
  const { result } = renderHook(() => useLiveWindow(node, 1, 60, "busy"));
  const seen = [result.current.behind];
  for (const after of [0, 1000]) {
    act(() => receive(frame({ time_ms: first.time_ms + after, shares: { busy: [20] } })));
    seen.push(result.current.behind);
  }
  expect(seen[1]).not.toBe(seen[0]);
  expect(seen[2]).toBe(seen[1]);
});
