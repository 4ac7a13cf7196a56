import { useQuery } from "@tanstack/react-query";
import type { Schemas } from "../api/client";
import { nodesQuery } from "../api/queries";

const TONES = { live: "ok", stale: "warn", away: "bad", new: "" } as const;

const HEALTH_MEANING = {
  live: "live: a sample in the last three intervals",
  stale: "stale: connected but silent",
  away: "away: not connected",
  new: "new: never seen",
} as const;

/** A node's health as a coloured dot; its word stands beside it or in the title. */
export function HealthDot({ health }: { health: Schemas["Health"] }) {
  return (
    <>
      <span className={`dot ${TONES[health]}`} title={HEALTH_MEANING[health]} />
      <span className="visually-hidden">{health}: </span>
    </>
  );
}

/** Stands wherever a simulated node is named. */
export function SimulatedTag() {
  return (
    <span className="tag simulated" title="This node is simulated; its figures are made up">
      simulated
    </span>
  );
}

/** The same where only the node's id is at hand. */
export function SimulatedTagOf({ nodeId }: { nodeId: number }) {
  const simulated = useQuery({
    ...nodesQuery,
    select: (nodes) => nodes.some((node) => node.id === nodeId && node.simulated),
  }).data;
  return simulated ? <SimulatedTag /> : null;
}
