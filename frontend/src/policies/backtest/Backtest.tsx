import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../../api/client";
import { nodesQuery } from "../../api/queries";
import { NodePicker } from "../../components/NodePicker";
import { duration, formatCount } from "../../lib/format";
import { clock, dateTime, localInput } from "../../lib/time";
import { EvaluationResult } from "../decisions/EvaluationResult";
import styles from "../policies.module.css";
import type { PolicySearch } from "../search";
import type { Policy, PolicyBody, PolicyVersion } from "../types";

type Props = {
  policy: Policy;
  versions: PolicyVersion[];
  /** The form's unsaved content. */
  edited: PolicyBody | null;
  search: PolicySearch;
  navigate: (change: Partial<PolicySearch>) => void;
};

const SPANS_S = [600, 1800, 3600];
const EDITED = "edited";

/** The decisions that a version would have made on a node in a stored time range. */
export function Backtest({ policy, versions, edited, search, navigate }: Props) {
  const nodes = useQuery(nodesQuery).data ?? [];
  const [what, setWhat] = useState(edited === null ? "" : EDITED);
  const [start, setStart] = useState(localInput(search.from ?? Date.now() - 3_600_000));
  const [spanS, setSpanS] = useState(
    search.from === undefined || search.to === undefined ? 3600 : Math.round((search.to - search.from) / 1000),
  );
  const version = search.version ?? policy.version;
  const body = what === EDITED ? edited : null;
  const { node, from, to } = search;
  const name = nodes.find((one) => one.id === node)?.name;
  const backtest = useQuery({
    queryKey: ["policy-backtest", policy.id, body ?? version, node, from, to],
    enabled: node !== undefined && from !== undefined && to !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: ({ signal }) =>
      unwrap(
        api.POST("/api/policies/{policy_id}/backtest", {
          params: { path: { policy_id: policy.id } },
          body: {
            ...(body === null ? { version } : { body }),
            node_id: node ?? 0,
            from_time: new Date(from ?? 0).toISOString(),
            to_time: new Date(to ?? 0).toISOString(),
          },
          signal,
        }),
      ),
  });
  const at = Date.parse(start);
  return (
    <>
      <form
        className={`card ${styles.backtest}`}
        aria-label="Backtest"
        onSubmit={(event) => {
          event.preventDefault();
          if (!Number.isNaN(at)) navigate({ from: at, to: Math.min(at + spanS * 1000, Date.now()) });
        }}
      >
        <div>
          <NodePicker
            label={name === undefined ? "Node" : `Node: ${name}`}
            placeholder={name === undefined ? "by name" : "another node"}
            onPick={(id) => navigate({ node: id })}
          />
        </div>
        <TextInput
          type="datetime-local"
          step="1"
          label="From"
          value={start}
          error={
            Number.isNaN(at) ? "Enter a date and a time." : at > Date.now() ? "Enter a time in the past." : undefined
          }
          onChange={(event) => setStart(event.currentTarget.value)}
        />
        <NativeSelect
          label="For"
          value={String(spanS)}
          data={[...new Set([...SPANS_S, spanS])].map((seconds) => ({
            value: String(seconds),
            label: duration(seconds),
          }))}
          onChange={(event) => setSpanS(Number(event.currentTarget.value))}
        />
        <NativeSelect
          label="Policy"
          value={body === null ? String(version) : EDITED}
          data={[
            ...(edited === null ? [] : [{ value: EDITED, label: "the edited form, not saved" }]),
            ...versions.map((one) => ({ value: String(one.version), label: `version ${one.version}` })),
          ]}
          onChange={(event) => {
            const { value } = event.currentTarget;
            setWhat(value);
            if (value !== EDITED) navigate({ version: Number(value) });
          }}
        />
        <Button
          type="submit"
          variant="filled"
          disabled={node === undefined || !(at < Date.now())}
          loading={backtest.isFetching}
        >
          Run backtest
        </Button>
      </form>
      {backtest.isError && (
        <p className="bad" role="alert">
          {errorMessage(backtest.error)}
        </p>
      )}
      {backtest.data !== undefined && <Result result={backtest.data} name={name ?? `node ${node}`} />}
      {node === undefined && (
        <p className="muted">
          Choose a node and a time range with stored samples. The policy is evaluated over them as if it had been
          enforced; nothing is changed.
        </p>
      )}
    </>
  );
}

const SHOWN = 100;

function Result({
  result: { steps, moves, sentence, from_time, to_time },
  name,
}: {
  result: Schemas["BacktestResult"];
  name: string;
}) {
  const [shown, setShown] = useState(SHOWN);
  const [from, to] = [Date.parse(from_time), Date.parse(to_time)];
  return (
    <section className="card" aria-label="Result of the backtest">
      <h2>
        {name}{" "}
        <small>
          {dateTime(from)} to {clock(to)}
        </small>
        <span className="grow" />
        <b className={moves > 0 ? "change" : "muted"}>{formatCount(moves, "move")}</b>
      </h2>
      <div className="body">
        <p>{sentence}</p>
        <div className={styles.strip} aria-hidden="true">
          {steps.map((step) => (
            <i
              key={step.at}
              data-moves={step.evaluation.actions.length > 0 || undefined}
              style={{ left: `${(100 * (Date.parse(step.at) - from)) / Math.max(1, to - from)}%` }}
              title={`${clock(Date.parse(step.at))} ${step.evaluation.sentence}`}
            />
          ))}
        </div>
        <p className="muted">
          Each line marks an evaluation whose result differs from the previous one; violet lines have moves.
        </p>
      </div>
      <ol className={styles.steps}>
        {steps.slice(0, shown).map((step) => (
          <li key={step.at}>
            <time className="mono" dateTime={step.at}>
              {clock(Date.parse(step.at))}
            </time>
            <EvaluationResult evaluation={step.evaluation} label={clock(Date.parse(step.at))} />
          </li>
        ))}
      </ol>
      {steps.length === 0 && <p className="body muted">No samples are stored for this time range.</p>}
      {steps.length > shown && (
        <div className="body">
          <Button onClick={() => setShown(shown + SHOWN)}>Show {Math.min(SHOWN, steps.length - shown)} more</Button>
        </div>
      )}
    </section>
  );
}
