import type { Schemas } from "../api/client";

type Clock = Pick<Schemas["NodeSummary"], "clock_skew_ms" | "clock_correction_ms">;

/** How far a node's clock is ahead of the backend's, also where its times are corrected; null where unknown. */
export function clockOffsetMs(node: Clock): number | null {
  if (node.clock_skew_ms === null && node.clock_correction_ms === 0) return null;
  return (node.clock_skew_ms ?? 0) - node.clock_correction_ms;
}
