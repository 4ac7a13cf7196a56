import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../../api/client";
import { nodeSummaryQuery } from "../../api/queries";
import { NodePicker } from "../../components/NodePicker";
import { duration, formatCount, unbroken } from "../../lib/format";
import { clock, dateTime, parseTime } from "../../lib/time";
import { EvaluationResult } from "../decisions/EvaluationResult";
import styles from "../policies.module.css";
import { samplesSpanQuery } from "../queries";
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
  const [what, setWhat] = useState(edited === null ? "" : EDITED);
  const [typed, setStart] = useState(search.from === undefined ? null : dateTime(search.from));
  const [spanS, setSpanS] = useState(
    search.from === undefined || search.to === undefined ? 3600 : Math.round((search.to - search.from) / 1000),
  );
  const version = search.version ?? policy.version;
  const body = what === EDITED ? edited : null;
  const { node, from, to } = search;
  const chosen = useQuery({ ...nodeSummaryQuery(node ?? 0), enabled: node !== undefined }).data ?? undefined;
  const name = chosen?.name;
  const span = useQuery(samplesSpanQuery(node));
  const stored = storedRange(span.data);
  // Until a time is typed, the range ends with the node's newest samples.
  const at = typed !== null ? parseTime(typed) : stored && Math.max(stored.from, stored.to - spanS * 1000);
  const backtest = useQuery({
    queryKey: ["policy-backtest", policy.id, body ?? version, node, from, to],
    enabled: node !== undefined && from !== undefined && to !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
    queryFn: ({ signal }) =>
      unwrap(
        api.POST("/api/v1/policies/{policy_id}/backtest", {
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
  const wrong = stored && at !== null ? whyEmpty(at, at + spanS * 1000, stored) : null;
  return (
    <>
      <form
        className={`card ${styles.backtest}`}
        aria-label="Backtest"
        onSubmit={(event) => {
          event.preventDefault();
          if (stored === null || at === null || wrong !== null) return;
          setStart(dateTime(at));
          const until = Math.min(at + spanS * 1000, stored.to);
          if (at === from && until === to && backtest.isError) void backtest.refetch();
          navigate({ from: at, to: until });
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
          label="From"
          value={typed ?? (at === null ? "" : dateTime(at))}
          error={wrong}
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
          disabled={stored === null || at === null || wrong !== null}
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
      <p className="muted" role="status">
        {node === undefined
          ? "Choose a node; the time range then ends with its newest samples. The policy is evaluated over them as if it had been enforced; nothing is changed."
          : span.isError
            ? errorMessage(span.error)
            : stored !== null
              ? unbroken(storedText(name ?? `node ${node}`, stored))
              : span.isSuccess && `No samples of ${name ?? "the node"} are stored.`}
      </p>
    </>
  );
}

type Range = { from: number; to: number };

function storedRange(span: Schemas["SampleSpan"] | undefined): Range | null {
  if (span?.from_time == null || span.to_time === null) return null;
  return { from: Date.parse(span.from_time), to: Date.parse(span.to_time) };
}

/** Why no samples can be in a time range; null if there may be some. */
export function whyEmpty(from: number, to: number, stored: Range): string | null {
  if (Number.isNaN(from)) return `Enter a time like ${dateTime(stored.to)}.`;
  if (to <= stored.from) return `The samples begin at ${dateTime(stored.from)}.`;
  return from >= stored.to ? `The samples end at ${dateTime(stored.to)}.` : null;
}

/** The time range of a node's samples as a sentence. */
export function storedText(name: string, { from, to }: Range): string {
  const end = dateTime(from).slice(0, 10) === dateTime(to).slice(0, 10) ? clock(to) : dateTime(to);
  return `Samples of ${name} are stored from ${dateTime(from)} to ${end}, ${duration((to - from) / 1000)}.`;
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
        <p>{unbroken(sentence)}</p>
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
