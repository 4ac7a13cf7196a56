import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo, useState } from "react";
import { errorMessage } from "../../api/client";
import { PERSISTED_POLICY_ID } from "../../api/constants";
import { Moment } from "../../components/Moment";
import { Scroll } from "../../components/Scroll";
import { dateTime } from "../../lib/time";
import { EvaluationResult, SettingName } from "../../policies/decisions/EvaluationResult";
import { ownershipLabel } from "../../policies/kinds";
import { decisionsQuery, driftsQuery, latestDecisionsQuery, recommendationsQuery } from "../../policies/queries";
import type { Decision, PolicyBody } from "../../policies/types";
import { ApplyPlan } from "../changes/ApplyPlan";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { holdoutText } from "./decisions";
import styles from "./policies.module.css";

const OUTCOME = {
  applying: ["applying", "change"],
  unconfirmed: ["unconfirmed", "change"],
  confirmed: ["confirmed", "ok"],
  rolled_back: ["rolled back", "warn"],
  failed: ["failed", "bad"],
} as const;
const SHOWN_DRIFTS = 8;

/** The policies in force on this node: recommendations, the latest evaluation of each with its reasons, and drift. */
export function NodePolicies({ view }: { view: NodeView }) {
  const recommended = useQuery(recommendationsQuery(view.node.id));
  const decisions = useQuery(latestDecisionsQuery(view.node.id));
  const newest = useQuery(decisionsQuery(view.node.id, null)).data ?? [];
  const drifts = useQuery(driftsQuery(view.node.id));
  const latest = useMemo(
    () =>
      (decisions.data ?? []).toSorted((a, b) => a.policy_name.localeCompare(b.policy_name, "en", { numeric: true })),
    [decisions.data],
  );
  const error = recommended.error ?? decisions.error ?? drifts.error;
  const known = recommended.data !== undefined && decisions.data !== undefined && drifts.data !== undefined;
  const proposals = new Set(recommended.data?.map(({ id }) => id));
  const others = latest.filter(({ id }) => !proposals.has(id));
  const select = (sel: string) => view.navigate({ sel });
  return (
    <section className="card" aria-labelledby="policies-heading">
      <h2>
        <span id="policies-heading">Policies</span>
        <small>evaluations on this node, with reasons</small>
        <span className="grow" />
        <Link to="/policies">all policies</Link>
      </h2>
      {view.node.outside_windows && (
        <p className={nodeStyles.note}>
          This node is outside its change windows: policies in mode enforce only recommend
          {view.node.outside_windows.opens_at !== null && (
            <>
              {" "}
              until <Moment at={view.node.outside_windows.opens_at} />
            </>
          )}
          .
        </p>
      )}
      {error !== null && (
        <p className={`bad ${nodeStyles.note}`} role="alert">
          {errorMessage(error)}
        </p>
      )}
      {!known && error === null && <p className={nodeStyles.note}>Loading evaluations.</p>}
      {known && latest.length === 0 && (
        <p className={nodeStyles.note}>No policy in force has been evaluated on this node yet.</p>
      )}
      {known && latest.length + drifts.data.length > 0 && (
        <Evaluations>
          {recommended.data.map((decision) => (
            <Recommendation key={decision.policy_id} view={view} decision={decision} />
          ))}
          {others.map((decision) => (
            <article key={decision.policy_id} className={styles.evaluation} aria-label={decision.policy_name}>
              <Head decision={decision} />
              <EvaluationResult evaluation={decision.evaluation} label={decision.policy_name} onSelect={select} />
            </article>
          ))}
          {drifts.data.length > 0 && <Drifts of={drifts.data} names={[...latest, ...newest]} onSelect={select} />}
        </Evaluations>
      )}
    </section>
  );
}

/** A resizable box of constant height: evaluations change every few seconds. */
function Evaluations({ children }: { children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the keyboard
    <section className={styles.evaluations} aria-label="Evaluations" tabIndex={0}>
      {children}
    </section>
  );
}

/** The name, version and mode of a decision's policy; persisted settings have the form of a decision, but no policy. */
export function Head({ decision }: { decision: Decision }) {
  const { policy_id, policy_name, version, mode, at, outcome } = decision;
  const tag = outcome === null ? null : OUTCOME[outcome];
  const holdout = holdoutText(decision);
  return (
    <h3>
      {policy_id === PERSISTED_POLICY_ID ? (
        policy_name
      ) : (
        <>
          <Link to="/policies/$policyId" params={{ policyId: policy_id }}>
            {policy_name}
          </Link>{" "}
          <span className="muted">v{version}</span>
        </>
      )}{" "}
      <span className="tag">{mode}</span> {tag !== null && <span className={`tag ${tag[1]}`}>{tag[0]}</span>}{" "}
      {holdout !== null && (
        <Link
          to="/policies/$policyId"
          params={{ policyId: policy_id }}
          search={{ tab: "overview" }}
          className="tag change"
          title={holdout.help}
        >
          {holdout.words}
        </Link>
      )}
      <span className="grow" />
      <span className="muted">
        since <Moment at={at} />
      </span>
    </h3>
  );
}

function Recommendation({ view, decision }: { view: NodeView; decision: Decision }) {
  // An open preview stays at its decision while newer evaluations arrive.
  const [pinned, setPinned] = useState<Decision | null>(null);
  const shown = pinned ?? decision;
  const { actions } = shown.evaluation;
  return (
    <article
      className={`${styles.evaluation} ${styles.recommended}`}
      aria-label={`${decision.policy_name} recommends`}
      data-pinned={pinned !== null || undefined}
    >
      <Head decision={shown} />
      <EvaluationResult
        evaluation={shown.evaluation}
        label={decision.policy_name}
        onSelect={(sel) => view.navigate({ sel })}
      />
      {pinned !== null ? (
        <div className={nodeStyles.applying}>
          <ApplyPlan
            node={view.node}
            desired={actions.map(({ key, becomes }) => ({ key, value: becomes }))}
            reason={`Recommended by policy ${pinned.policy_name} v${pinned.version}`}
          />
          <Button onClick={() => setPinned(null)}>Close the preview</Button>
        </div>
      ) : (
        <Button variant="filled" onClick={() => setPinned(decision)}>
          Preview and apply
        </Button>
      )}
    </article>
  );
}

type Drift = { at: string; key: string; expected: string; found: string; cause: string | null; policy_id: number } & {
  response: PolicyBody["on_drift"];
};

function Drifts({ of, names, onSelect }: { of: Drift[]; names: Decision[]; onSelect: (sel: string) => void }) {
  const [all, setAll] = useState(false);
  const nameOf = (id: number) => names.find((one) => one.policy_id === id)?.policy_name ?? `policy ${id}`;
  return (
    <div className={styles.evaluation}>
      <h3>
        Drift <span className="muted">policy settings changed by something other than Coresteer</span>
      </h3>
      <Scroll label="Drift">
        <table className="table">
          <thead>
            <tr>
              <th>when</th>
              <th>setting</th>
              <th>expected → found</th>
              <th>by</th>
              <th>policy</th>
              <th>reaction</th>
            </tr>
          </thead>
          <tbody>
            {(all ? of : of.slice(0, SHOWN_DRIFTS)).map((drift) => (
              <tr key={`${drift.at} ${drift.key} ${drift.policy_id}`}>
                <td>{dateTime(Date.parse(drift.at))}</td>
                <td>
                  <SettingName of={drift.key} onSelect={onSelect} />
                </td>
                <td>
                  <code>{drift.expected}</code> → <code>{drift.found}</code>
                </td>
                <td>{drift.cause ?? <span className="muted">unknown</span>}</td>
                <td>{nameOf(drift.policy_id)}</td>
                <td>{ownershipLabel(drift.response)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {!all && of.length > SHOWN_DRIFTS && (
        <Button onClick={() => setAll(true)}>Show {of.length - SHOWN_DRIFTS} more</Button>
      )}
    </div>
  );
}
