import { useEffect, useMemo, useState } from "react";
import type { Schemas } from "../../api/client";
import type { Range } from "../../charts/TimeOverlay";
import { liveConnection, useLive, useNodeSubscription } from "../../live/socket";
import type { HeatShare } from "../cpuShares";
import { LiveWindow } from "./liveWindow";

const TICK_MS = 1000;

/** The node's live window, and the history range to fill it with; a new range after every reconnect. */
export function useLiveWindow(
  node: Schemas["Node"],
  cpus: number,
  spanS: number,
  share: HeatShare,
): { window: LiveWindow; behind: Range } {
  const intervalS = node.interval_s ?? 1;
  const [skewMs] = useState(node.clock_skew_ms ?? 0);
  const window = useMemo(() => new LiveWindow(cpus, spanS, intervalS, skewMs), [cpus, spanS, intervalS, skewMs]);
  const connections = useConnections();
  // biome-ignore lint/correctness/useExhaustiveDependencies: another connection or share needs its own history.
  const behind = useMemo(() => {
    const now = window.now();
    return { from: Math.round(now - window.spanMs), to: Math.round(now) };
  }, [window, share, connections]);

  useEffect(() => window.show(share), [window, share]);
  useNodeSubscription(node.id);
  useLive("rates", (frame) => {
    if (frame.node_id === node.id) window.push(frame);
  });
  useEffect(() => {
    const timer = setInterval(() => window.tick(), TICK_MS);
    return () => clearInterval(timer);
  }, [window]);
  return { window, behind };
}

/** The number of reconnects of the live connection. */
function useConnections(): number {
  const [connections, setConnections] = useState(0);
  useEffect(() => {
    let before = liveConnection.state().status;
    return liveConnection.onState(() => {
      const now = liveConnection.state().status;
      if (now === "connected" && before === "retrying") setConnections((count) => count + 1);
      before = now;
    });
  }, []);
  return connections;
}
