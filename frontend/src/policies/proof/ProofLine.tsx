import { useQuery } from "@tanstack/react-query";
import { errorMessage } from "../../api/client";
import { Moment } from "../../components/Moment";
import { effectText } from "../../experiments/format";
import { formatCount, unbroken } from "../../lib/format";
import { dateTime } from "../../lib/time";
import { proofQuery } from "../queries";
import type { Policy } from "../types";
import { FINDINGS, firstEvidence, isDetected, reasonOf, standingOf } from "./findings";
import styles from "./proof.module.css";
import type { PolicyProof } from "./types";

/** What is known about the policy's effect, in one sentence; harm comes first. */
export function ProofLine({ policy, label }: { policy: Policy; label: string | undefined }) {
  const proof = useQuery(proofQuery(policy.id, label));
  return (
    <section className={styles.verdict} aria-label="Effect" aria-live="polite">
      {proof.data !== undefined ? (
        <Verdict policy={policy} proof={proof.data} />
      ) : proof.error !== null ? (
        <span className="bad" role="alert">
          {errorMessage(proof.error)}
        </span>
      ) : (
        <b className="muted">Loading the effect.</b>
      )}
    </section>
  );
}

function Verdict({ policy, proof }: { policy: Policy; proof: PolicyProof }) {
  const inForce = policy.enabled ? proof.versions.find(({ version }) => version === policy.version) : undefined;
  const primary = inForce?.metrics.find((metric) => metric.primary);
  const harmed = inForce?.metrics.filter((metric) => !metric.primary && metric.finding === "worsens") ?? [];
  const finding = primary?.finding ?? "no_evidence";
  const expected = inForce === undefined || isDetected(finding) ? null : (primary?.expected ?? null);
  const undone = proof.versions.filter((version) => standingOf(version, policy) === "rolled back");
  const latest = undone[0]?.version === policy.versions ? undone[0] : undefined;
  return (
    <>
      {harmed.map(({ metric, sentence }) => (
        <b key={metric} className="bad">
          {unbroken(sentence)}
        </b>
      ))}
      <b className={isDetected(finding) ? FINDINGS[finding].tone : ""}>
        {inForce !== undefined && <span className={styles.version}>v{inForce.version}</span>}
        {unbroken(proof.sentence)}{" "}
        {inForce !== undefined && proof.paused_at === null && firstEvidence(inForce, policy.body.proof, Date.now())}
        {expected !== null &&
          proof.paused_at === null &&
          `An effect of ${effectText(expected.effect).replace("+", "")} would be detected by ${dateTime(Date.parse(expected.at))}.`}
      </b>
      {inForce?.balance.biased && <span className="warn">{inForce.balance.sentence}</span>}
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
