import { formatCount } from "../../lib/format";
import type { PolicySearch } from "../search";
import type { Policy } from "../types";
import { StageTable } from "./StageTable";

type Props = { policy: Policy; navigate: (change: Partial<PolicySearch>) => void };

/** The stages of the rollout in progress; without one, what is in force. */
export function RolloutCard({ policy, navigate }: Props) {
  const { rollout } = policy;
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
        <StageTable rollout={rollout} />
      )}
    </section>
  );
}
