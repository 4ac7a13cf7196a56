import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../api/client";
import { nodeSummaryQuery } from "../api/queries";

const TONES = { live: "ok", stale: "warn", away: "bad", new: "" } as const;

const HEALTH_MEANING = {
  live: "live: samples arrive in time",
  stale: "stale: connected, but its next sample is overdue",
  away: "away: not connected",
  new: "new: never seen",
} as const;

/** A node's health as a coloured dot, with its name as text or tooltip. */
export function HealthDot({ health }: { health: Schemas["Health"] }) {
  return (
    <>
      <span className={`dot ${TONES[health]}`} title={HEALTH_MEANING[health]} />
      <span className="visually-hidden">{health}: </span>
    </>
  );
}

/** The tag of simulated nodes, shown beside their names. */
export function SimulatedTag() {
  return (
    <span className="tag simulated" title="Simulated node with generated data">
      simulated
    </span>
  );
}

/** The tag for a node id; nothing for real nodes. */
export function SimulatedTagOf({ nodeId }: { nodeId: number }) {
  return useQuery(nodeSummaryQuery(nodeId)).data?.simulated ? <SimulatedTag /> : null;
}
