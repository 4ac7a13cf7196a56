import { useQuery } from "@tanstack/react-query";
import { errorMessage } from "../../api/client";
import { Moment } from "../../components/Moment";
import { formatCount } from "../../lib/format";
import { proofQuery } from "../queries";
import type { PolicySearch } from "../search";
import type { Policy } from "../types";
import { FINDINGS, firstEvidence, reasonOf, standingOf } from "./findings";
import styles from "./proof.module.css";
import type { PolicyProof } from "./types";

type Props = { policy: Policy; search: PolicySearch; navigate: (change: Partial<PolicySearch>) => void };

/** What is known about the policy's effect, in one sentence; harm comes first. */
export function ProofLine({ policy, search, navigate }: Props) {
  const proof = useQuery(proofQuery(policy.id, search.label));
  return (
    <section className={`card ${styles.line}`} aria-label="Effect" aria-live="polite">
      <div className={styles.verdict}>
        {proof.data !== undefined ? (
          <Verdict policy={policy} proof={proof.data} />
        ) : proof.error !== null ? (
          <span className="bad" role="alert">
            {errorMessage(proof.error)}
          </span>
        ) : (
          <span className="muted">Loading the effect.</span>
        )}
      </div>
      {search.tab !== "proof" && (
        <button type="button" className="link" onClick={() => navigate({ tab: "proof", version: undefined })}>
          Show the proof
        </button>
      )}
    </section>
  );
}

function Verdict({ policy, proof }: { policy: Policy; proof: PolicyProof }) {
  const inForce = policy.enabled ? proof.versions.find(({ version }) => version === policy.version) : undefined;
  const primary = inForce?.metrics.find((metric) => metric.primary);
  const harmed = inForce?.metrics.filter((metric) => !metric.primary && metric.finding === "worsens") ?? [];
  const undone = proof.versions.filter((version) => standingOf(version, policy) === "rolled back");
  const latest = undone[0]?.version === policy.versions ? undone[0] : undefined;
  return (
    <>
      {harmed.map(({ metric, sentence }) => (
        <b key={metric} className="bad">
          {sentence}
        </b>
      ))}
      <b className={FINDINGS[primary?.finding ?? "no_evidence"].tone}>
        {inForce !== undefined && <span className={styles.version}>v{inForce.version}</span>}
        {proof.sentence}{" "}
        {inForce !== undefined && proof.paused_at === null && firstEvidence(inForce, policy.body.proof, Date.now())}
      </b>
      {latest !== undefined && (
        <span className="warn">
          Version {latest.version} was rolled back automatically at <Moment at={latest.rolled_back_at} />.{" "}
          {reasonOf(latest)}
        </span>
      )}
      {proof.paused_at !== null && (
        <span className="warn">
          All holdouts are paused by {proof.paused_by} since <Moment at={proof.paused_at} />: nothing is measured.
        </span>
      )}
      {inForce !== undefined && inForce.episodes > 0 && (
        <span className="muted">
          {formatCount(inForce.episodes, "episode")} on {formatCount(inForce.nodes, "node")}. The 95 % interval is valid
          at every look.
          {harmed.length === 0 && inForce.metrics.length > 1 && " No other metric is worse as far as detected."}
        </span>
      )}
    </>
  );
}
