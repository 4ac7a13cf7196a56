import { useEffect, useState } from "react";
import { formatCount } from "../../lib/format";
import { isRolling } from "../queries";
import type { PolicySearch } from "../search";
import type { Policy } from "../types";
import { StageTable } from "./StageTable";

type Props = { policy: Policy; navigate: (change: Partial<PolicySearch>) => void };

const TICK_MS = 1000;

/** The time now, again every second while a rollout advances. */
export function useSeconds(ticking: boolean): number {
  const [now, setNow] = useState(Date.now());
  useEffect(() => {
    if (!ticking) return;
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [ticking]);
  return now;
}

/** The stages of the rollout in progress; without one, what is in force. */
export function RolloutCard({ policy, navigate }: Props) {
  const { rollout } = policy;
  const now = useSeconds(isRolling(rollout));
  const [only] = policy.in_force;
  return (
    <section className="card" aria-label="Rollout">
      <h2>
        {rollout === null ? "Rollout" : `Rollout of v${rollout.to_version}`}
        {rollout !== null && <small>figures of each stage: before → after</small>}
        <span className="grow" />
        <button type="button" className="link" onClick={() => navigate({ tab: "rollout" })}>
          {rollout === null ? "Roll out a version" : "Stop or roll back"}
        </button>
      </h2>
      {rollout === null ? (
        <p className="body muted">
          No rollout is in progress.{" "}
          {only === undefined
            ? "The policy is in force on no node."
            : `Version ${only.version} is in force on ${formatCount(only.nodes, "node")}.`}
        </p>
      ) : (
        <StageTable rollout={rollout} now={now} />
      )}
    </section>
  );
}
