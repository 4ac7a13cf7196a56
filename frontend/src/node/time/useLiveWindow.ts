import { useCallback, useEffect, useMemo, useState } from "react";
import type { Schemas } from "../../api/client";
import type { Range } from "../../charts/TimeOverlay";
import { liveConnection, useLive, useNodeSubscription } from "../../live/socket";
import type { HeatShare } from "../cpuShares";
import { LiveWindow } from "./liveWindow";
import { RECENT_MS } from "./load";

const TICK_MS = 1000;
/** After a silence, the agent sends the newest sample first: how long what it had not sent before it may take. */
const RESEND_MS = 10_000;

/** window: what is shown; next: what history over the range `behind` fills before show() makes it the shown one. */
type Live = { window: LiveWindow; next: LiveWindow; behind: Range; show: () => void };

/**
 * The node's live window, and the history range to fill it with; a new range after every reconnect, and once more
 * after its first frame, before which the agent sends the samples that it had not sent yet; after a silence, also 10 s
 * later. After a change of the span, or of the node's clock by 5 s, the previous window stays shown until history has
 * filled the new one.
 */
export function useLiveWindow(node: Schemas["Node"], cpus: number, spanS: number, share: HeatShare): Live {
  const intervalS = node.interval_s ?? 1;
  const [skewMs, setSkewMs] = useState(node.clock_skew_ms ?? 0);
  const next = useMemo(() => new LiveWindow(cpus, spanS, intervalS, skewMs), [cpus, spanS, intervalS, skewMs]);
  const [window, setWindow] = useState(next);
  const show = useCallback(() => setWindow(next), [next]);
  const connections = useConnections();
  const [answered, setAnswered] = useState({ connections: -1, againMs: Number.POSITIVE_INFINITY });
  // biome-ignore lint/correctness/useExhaustiveDependencies: another connection or share needs its own history.
  const behind = useMemo(() => {
    const now = next.now();
    return { from: Math.round(now - next.spanMs), to: Math.round(now) };
  }, [next, share, connections, answered]);

  useEffect(() => {
    if (next !== window) next.follow(window);
  }, [window, next]);
  useNodeSubscription(node.id);
  useLive("rates", (frame) => {
    if (frame.node_id !== node.id) return;
    const wasSilent = window.isSilent();
    for (const one of new Set([window, next])) one.push(frame);
    if (Math.abs(next.skewMs - skewMs) >= RECENT_MS) setSkewMs(next.skewMs);
    if (wasSilent || answered.connections !== connections || frame.time_ms >= answered.againMs)
      setAnswered({ connections, againMs: wasSilent ? frame.time_ms + RESEND_MS : Number.POSITIVE_INFINITY });
  });
  useEffect(() => {
    const timer = setInterval(() => window.tick(), TICK_MS);
    return () => clearInterval(timer);
  }, [window]);
  return { window, next, behind, show };
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
