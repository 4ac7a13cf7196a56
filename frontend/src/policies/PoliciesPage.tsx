import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { errorMessage } from "../api/client";
import { useIsSomeOperator } from "../auth/me";
import { Moment } from "../components/Moment";
import { PageTop } from "../components/PageTop";
import { Scroll } from "../components/Scroll";
import { Unknown } from "../components/Unknown";
import { Approvals } from "./approvals/Approvals";
import { kindLabel, kindNames, kindSchema, modeHelp } from "./kinds";
import styles from "./policies.module.css";
import { policyState, policyTone } from "./policyState";
import { Effect } from "./proof/Effects";
import { Holdouts } from "./proof/Holdouts";
import type { FleetProof } from "./proof/types";
import { fleetProofQuery, policiesQuery } from "./queries";
import type { Policy } from "./types";

/** All policies by rank, with the state of each. */
export function PoliciesPage() {
  const policies = useQuery(policiesQuery);
  const proof = useQuery(fleetProofQuery); // its lines are above and in the list, which would move
  const listed = proof.isPending ? undefined : policies.data;
  const isOperator = useIsSomeOperator();
  return (
    <>
      <PageTop title="Policies">
        <h1>Policies</h1>
        {listed !== undefined && listed.length > 0 && (
          <span className="tag">{listed.filter((policy) => policy.enabled).length} in force</span>
        )}
      </PageTop>
      {policies.isError && (
        <p className="bad" role="alert">
          {errorMessage(policies.error)}
        </p>
      )}
      {listed === undefined && !policies.isError && <p className="muted">Loading the policies.</p>}
      {listed?.length === 0 && (
        <p>
          There is no policy yet. A policy is evaluated every few seconds on each of its nodes. Depending on its mode it
          shows, recommends or applies the result, with its reasons.
        </p>
      )}
      {listed !== undefined && listed.length > 0 && (
        <>
          <Approvals />
          <Holdouts />
          <List policies={listed} />
        </>
      )}
      {listed !== undefined && (
        <section className={`card ${styles.new}`}>
          <h2>New policy</h2>
          {isOperator ? (
            <ul className={styles.kinds}>
              {kindNames().map((kind) => (
                <li key={kind}>
                  <Link to="/policies/new" search={{ kind }}>
                    {kindLabel(kind)}
                  </Link>
                  <span className="muted">{kindSchema(kind).description}</span>
                </li>
              ))}
            </ul>
          ) : (
            <p className="body muted">
              Creating a policy requires the operator role; viewers can read and preview policies.
            </p>
          )}
        </section>
      )}
    </>
  );
}

function List({ policies }: { policies: Policy[] }) {
  const lines = useQuery(fleetProofQuery).data?.policies ?? [];
  return (
    <section className="card">
      <h2>
        Policies <small>of two policies that set the same setting, the lower rank wins</small>
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
              <th>effect</th>
              <th>created</th>
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
                <td>{kindLabel(policy.body.spec.type)}</td>
                <td title={modeHelp(policy.body.mode)}>{policy.body.mode}</td>
                <td className="n">
                  {policy.version}
                  {policy.versions > policy.version && <span className="muted"> of {policy.versions}</span>}
                </td>
                <td className="n">{policy.nodes.toLocaleString("en")}</td>
                <td>
                  <span className={`dot ${policyTone(policy)}`} />
                  {policyState(policy)}
                </td>
                <td>
                  <Proven line={lines.find(({ policy_id }) => policy_id === policy.id)} />
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

/** The effect of a policy in force; nothing for one that is not enforced, and hatched without evidence. */
function Proven({ line }: { line: FleetProof["policies"][number] | undefined }) {
  if (line === undefined) return null;
  return (
    <span title={line.sentence}>
      {line.effect === null ? <Unknown why={line.sentence} /> : <Effect effect={line.effect} finding={line.finding} />}
    </span>
  );
}
