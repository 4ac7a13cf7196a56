import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { errorMessage } from "../api/client";
import { Moment } from "../components/Moment";
import { fleetProofQuery } from "../policies/queries";
import styles from "./fleet.module.css";

/** One line: what all policies in force together save; nothing while none is enforced. */
export function FleetSavings() {
  const { data: proof, error } = useQuery(fleetProofQuery);
  if (proof === undefined)
    return error === null ? null : (
      <p className={`bad ${styles.savings}`} role="alert">
        {errorMessage(error)}
      </p>
    );
  if (proof.policies.length === 0) return null;
  const { cores, policies, paused_at, paused_by } = proof;
  const tone = cores === null ? "muted" : cores.low > 0 ? "ok" : cores.high < 0 ? "bad" : "";
  const only = policies.length === 1 ? policies[0] : undefined;
  return (
    <p className={styles.savings}>
      <span className={tone}>{proof.sentence}</span>{" "}
      {paused_at !== null && (
        <span className="warn">
          Holdouts are paused by {paused_by} since <Moment at={paused_at} />.{" "}
        </span>
      )}
      {only === undefined ? (
        <Link to="/policies">Show the policies</Link>
      ) : (
        <Link to="/policies/$policyId" params={{ policyId: only.policy_id }} search={{ tab: "overview" }}>
          {cores === null ? "Show the policy" : "Show the proof"}
        </Link>
      )}
    </p>
  );
}
