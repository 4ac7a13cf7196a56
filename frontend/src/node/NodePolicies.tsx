import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo, useState } from "react";
import { sentenceOf } from "../api/client";
import { dateTime } from "../lib/time";
import { EvaluationView, SettingName } from "../policies/EvaluationView";
import { OWNERSHIPS } from "../policies/kinds";
import { decisionsQuery, driftsQuery, recommendationsQuery } from "../policies/queries";
import type { Decision } from "../policies/types";
import { Moment } from "../settings/Moment";
import { Scroll } from "../shell/Scroll";
import { latestOfEach } from "./decisions";
import classes from "./node.module.css";
import { ApplyPlan } from "./panel/ApplyPlan";
import type { NodeView } from "./view";

const OUTCOME = {
  applying: ["being applied", "change"],
  unconfirmed: ["applied, waits to be kept", "change"],
  confirmed: ["carried out and kept", "ok"],
  rolled_back: ["carried out, then put back", "warn"],
  failed: ["could not be carried out", "bad"],
} as const;
const SHOWN_DRIFTS = 8;

/** What policies think of this node: what they recommend, their last evaluation with why and why not, and what others changed. */
export function NodePolicies({ view }: { view: NodeView }) {
  const recommended = useQuery(recommendationsQuery(view.node.id));
  const decisions = useQuery(decisionsQuery(view.node.id, null));
  const drifts = useQuery(driftsQuery(view.node.id));
  const latest = useMemo(() => latestOfEach(decisions.data ?? []), [decisions.data]);
  const error = recommended.error ?? decisions.error ?? drifts.error;
  const known = recommended.data !== undefined && decisions.data !== undefined && drifts.data !== undefined;
  const proposals = new Set(recommended.data?.map(({ id }) => id));
  const others = latest.filter(({ id }) => !proposals.has(id));
  const select = (sel: string) => view.navigate({ sel });
  return (
    <section className="card" aria-labelledby="policies-heading">
      <h2>
        <span id="policies-heading">Policies</span>
        <small>what they evaluate here, and why</small>
        <span className="grow" />
        <Link to="/policies">all policies</Link>
      </h2>
      {error !== null && (
        <p className={`bad ${classes.note}`} role="alert">
          {sentenceOf(error)}
        </p>
      )}
      {!known && error === null && <p className={classes.note}>Reading what they evaluated.</p>}
      {known && latest.length === 0 && (
        <p className={classes.note}>No policy has evaluated anything on this node yet.</p>
      )}
      {latest.length > 0 && (
        <Verdicts>
          {recommended.data?.map((decision) => (
            <Recommendation key={decision.policy_id} view={view} decision={decision} />
          ))}
          {others.map((decision) => (
            <article key={decision.policy_id} className={classes.verdict} aria-label={decision.policy_name}>
              <Head decision={decision} />
              <EvaluationView evaluation={decision.evaluation} label={decision.policy_name} onSelect={select} />
            </article>
          ))}
          {drifts.data !== undefined && drifts.data.length > 0 && (
            <Drifts of={drifts.data} names={latest} onSelect={select} />
          )}
        </Verdicts>
      )}
    </section>
  );
}

/** Conclusions come and go every few seconds: they do so in a box of one height, which a person may drag. */
function Verdicts({ children }: { children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the keyboard
    <section className={classes.verdicts} aria-label="Conclusions" tabIndex={0}>
      {children}
    </section>
  );
}

function Head({ decision }: { decision: Decision }) {
  const { policy_id, policy_name, version, mode, at, outcome } = decision;
  const became = outcome === null ? null : OUTCOME[outcome];
  return (
    <h3>
      <Link to="/policies/$policyId" params={{ policyId: policy_id }}>
        {policy_name}
      </Link>{" "}
      <span className="muted">v{version}</span> <span className="tag">{mode}</span>{" "}
      {became !== null && <span className={`tag ${became[1]}`}>{became[0]}</span>}
      <span className="grow" />
      <span className="muted">
        since <Moment at={at} />
      </span>
    </h3>
  );
}

function Recommendation({ view, decision }: { view: NodeView; decision: Decision }) {
  // What is being looked at closely holds still, also when the policy has a newer word meanwhile.
  const [held, setHeld] = useState<Decision | null>(null);
  const shown = held ?? decision;
  const { actions } = shown.evaluation;
  return (
    <article
      className={`${classes.verdict} ${classes.recommended}`}
      aria-label={`${decision.policy_name} recommends`}
      data-held={held !== null || undefined}
    >
      <Head decision={shown} />
      <EvaluationView
        evaluation={shown.evaluation}
        label={decision.policy_name}
        onSelect={(sel) => view.navigate({ sel })}
      />
      {held !== null ? (
        <div className={classes.applying}>
          <ApplyPlan
            node={view.node}
            desired={actions.map(({ key, becomes }) => ({ key, value: becomes }))}
            reason={`Recommended by policy ${held.policy_name} v${held.version}`}
          />
          <Button onClick={() => setHeld(null)}>Close the preview</Button>
        </div>
      ) : (
        <Button variant="filled" onClick={() => setHeld(decision)}>
          Preview and apply
        </Button>
      )}
    </article>
  );
}

type Drift = { at: string; key: string; expected: string; found: string; cause: string | null; policy_id: number } & {
  response: keyof typeof OWNERSHIPS;
};

function Drifts({ of, names, onSelect }: { of: Drift[]; names: Decision[]; onSelect: (sel: string) => void }) {
  const [all, setAll] = useState(false);
  const nameOf = (id: number) => names.find((one) => one.policy_id === id)?.policy_name ?? `policy ${id}`;
  return (
    <div className={classes.verdict}>
      <h3>
        Changed by others <span className="muted">settings that were not as a policy had set them</span>
      </h3>
      <Scroll label="Changed by others">
        <table className="table">
          <thead>
            <tr>
              <th>when</th>
              <th>setting</th>
              <th>expected → found</th>
              <th>by</th>
              <th>policy</th>
              <th>what it did</th>
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
                <td>{OWNERSHIPS[drift.response]}</td>
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
