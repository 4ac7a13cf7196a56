import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { api, unwrap } from "../../../api/client";
import { handleSignedOut, queryClient } from "../../../api/queries";
import { useIsSomeOperator } from "../../../auth/me";
import { FormError } from "../../../components/FormError";
import { Scroll } from "../../../components/Scroll";
import { formatCount } from "../../../lib/format";
import { metricOf } from "../../arms";
import { effectWithInterval, figureText } from "../../format";
import { hasEnded } from "../../queries";
import type { Experiment, Interval } from "../../types";
import { groupOf, ordered, stateText } from "./candidateStates";
import { FrontChart } from "./FrontChart";
import styles from "./tune.module.css";
import { policyOf, type TuneResult, whyNotConfirmed } from "./tuneActions";

type Props = { experiment: Experiment; tune: TuneResult };

/** What a tune has found: the front between its two metrics, every measured combination, and what to do with the best. */
export function TuneResults({ experiment, tune }: Props) {
  const measured = tune.candidates.filter(({ runs }) => runs > 0).length;
  return (
    <>
      <section className="card" aria-label="Front">
        <h2>
          {metricOf(experiment, experiment.spec.tune.latency).label} over{" "}
          {metricOf(experiment, experiment.spec.primary).label}{" "}
          <small>
            {measured} of {formatCount(tune.combinations, "combination")} measured ·{" "}
            {tune.eliminated.toLocaleString("en")} eliminated
          </small>
        </h2>
        <div className="body">
          <FrontChart experiment={experiment} />
          {hasEnded(experiment) && <Actions experiment={experiment} />}
        </div>
      </section>
      <section className="card" aria-label="Combinations">
        <h2>
          Measured combinations <small>estimates from all runs, with 95 % intervals</small>
        </h2>
        <CandidateTable experiment={experiment} tune={tune} />
      </section>
    </>
  );
}

const POLICY =
  "The policy only recommends, on nodes that its selector matches, and starts disabled; both can be edited.";
const UNCONFIRMED =
  "The best of many estimates looks better than it is: confirm it in an A/B experiment before a policy enforces it.";

/** Confirms the best combination in a new experiment, and makes it a policy. */
function Actions({ experiment }: { experiment: Experiment }) {
  const navigate = useNavigate();
  const isOperator = useIsSomeOperator();
  const policy = policyOf(experiment);
  const unconfirmed = whyNotConfirmed(experiment);
  const create = useMutation({
    mutationFn: (body: NonNullable<typeof policy.body>) => unwrap(api.POST("/api/v1/policies", { body })),
    onError: handleSignedOut,
    onSuccess: async (made) => {
      await queryClient.invalidateQueries({ queryKey: ["policies"] });
      await navigate({ to: "/policies/$policyId", params: { policyId: made.id } });
    },
  });
  return (
    <div className={styles.actions}>
      <Button
        variant="filled"
        disabled={unconfirmed !== null}
        renderRoot={
          unconfirmed === null
            ? (props) => <Link {...props} to="/experiments/new" search={{ confirm: experiment.id }} />
            : undefined
        }
      >
        Confirm in an A/B experiment
      </Button>
      <Button
        disabled={policy.body === null || !isOperator}
        loading={create.isPending}
        onClick={() => policy.body !== null && create.mutate(policy.body)}
      >
        Save as policy (unconfirmed)
      </Button>
      <span className="muted">{[...new Set([policy.why ?? POLICY, unconfirmed ?? UNCONFIRMED])].join(" ")}</span>
      {policy.leftOut.length > 0 && (
        <div role="note" aria-label="Not part of the policy">
          Not part of the policy, although measured with it:
          <ul>
            {policy.leftOut.map((phrase) => (
              <li key={phrase}>{phrase}</li>
            ))}
          </ul>
        </div>
      )}
      <FormError error={create.error} fields={[]} />
    </div>
  );
}

function CandidateTable({ experiment, tune }: Props) {
  const { spec } = experiment;
  const [primary, latency] = [metricOf(experiment, spec.primary), metricOf(experiment, spec.tune.latency)];
  const rows = ordered(tune.candidates, primary.better === "more");
  return (
    <Scroll label="Measured combinations">
      <table className={`table ${styles.table}`}>
        <thead>
          <tr>
            <th>combination</th>
            <th className="n">runs</th>
            <th className="n">{primary.label}</th>
            <th className="n">against the baseline</th>
            <th className="n">{latency.label}</th>
            <th title="No other measured combination is better in both metrics">front</th>
            <th>state</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((candidate) => (
            <tr key={candidate.arm.join()} data-eliminated={groupOf(candidate) === "eliminated" || undefined}>
              <td>{candidate.name}</td>
              <td className="n">{candidate.runs}</td>
              <td className={`n ${candidate.cost === null ? "hatched" : ""}`}>
                {withInterval(candidate.cost, primary.unit)}
              </td>
              <td className="n">{candidate.effect === null ? "" : effectWithInterval(candidate.effect)}</td>
              <td className={`n ${candidate.latency === null ? "hatched" : ""}`}>
                {withInterval(candidate.latency, latency.unit)}
              </td>
              <td>{candidate.front ? "◆" : ""}</td>
              <td className={candidate.state === "best" ? "ok" : undefined}>{stateText(candidate)}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function withInterval(interval: Interval | null, unit: string): string {
  if (interval === null) return figureText(null, unit);
  return `${figureText(interval.value, unit)} (${figureText(interval.low, unit)} to ${figureText(interval.high, unit)})`;
}
