import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { sentenceOf } from "../api/client";
import { useHasRole } from "../auth/me";
import { Moment } from "../components/Moment";
import { PageTop } from "../components/PageTop";
import { Scroll } from "../components/Scroll";
import { KIND_NAMES, KINDS, MODES } from "./kinds";
import styles from "./policies.module.css";
import { policyState } from "./policyState";
import { isRolling, policiesQuery } from "./queries";
import type { Policy } from "./types";

/** All policies in the order in which they are heard, and how far each has come. */
export function PoliciesPage() {
  const policies = useQuery(policiesQuery);
  const may = useHasRole("operator");
  return (
    <>
      <PageTop title="Policies">
        <h1>Policies</h1>
        {policies.data !== undefined && policies.data.length > 0 && (
          <span className="tag">{policies.data.filter((policy) => policy.enabled).length} in force</span>
        )}
      </PageTop>
      {policies.isError && (
        <p className="bad" role="alert">
          {sentenceOf(policies.error)}
        </p>
      )}
      {policies.data === undefined && !policies.isError && <p className="muted">Reading the policies.</p>}
      {policies.data?.length === 0 && (
        <p>
          There is no policy yet. A policy decides every few seconds on each of its nodes, says why, and shows, proposes
          or carries out what it concludes.
        </p>
      )}
      {policies.data !== undefined && policies.data.length > 0 && <List policies={policies.data} />}
      {policies.data !== undefined && (
        <section className={`card ${styles.new}`}>
          <h2>New policy</h2>
          {may ? (
            <ul className={styles.kinds}>
              {KIND_NAMES.map((kind) => (
                <li key={kind}>
                  <Link to="/policies/new" search={{ kind }}>
                    {KINDS[kind].label}
                  </Link>
                  <span className="muted">{KINDS[kind].about}</span>
                </li>
              ))}
            </ul>
          ) : (
            <p className="body muted">Making a policy needs the operator role; anybody may look and preview.</p>
          )}
        </section>
      )}
    </>
  );
}

function List({ policies }: { policies: Policy[] }) {
  return (
    <section className="card">
      <h2>
        Policies <small>of two that want the same setting the lower rank has it</small>
      </h2>
      <Scroll label="Policies">
        <table className="table">
          <thead>
            <tr>
              <th className="n">rank</th>
              <th>name</th>
              <th>kind</th>
              <th>mode</th>
              <th className="n">version</th>
              <th className="n">nodes</th>
              <th>state</th>
              <th>made</th>
            </tr>
          </thead>
          <tbody>
            {policies.map((policy) => (
              <tr key={policy.id}>
                <td className="n">{policy.body.rank}</td>
                <td>
                  <Link to="/policies/$policyId" params={{ policyId: policy.id }}>
                    {policy.name}
                  </Link>
                </td>
                <td>{KINDS[policy.body.spec.type].label}</td>
                <td title={MODES[policy.body.mode].about}>{policy.body.mode}</td>
                <td className="n">
                  {policy.version}
                  {policy.versions > policy.version && <span className="muted"> of {policy.versions}</span>}
                </td>
                <td className="n">{policy.nodes.toLocaleString("en")}</td>
                <td>
                  <span className={`dot ${isRolling(policy.rollout) ? "warn" : policy.enabled ? "ok" : ""}`} />
                  {policyState(policy)}
                </td>
                <td>
                  <Moment at={policy.created_at} /> <span className="muted">by {policy.created_by}</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
