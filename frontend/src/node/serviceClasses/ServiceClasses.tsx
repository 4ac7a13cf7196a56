import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { errorMessage } from "../../api/client";
import { TimeChart } from "../../charts/TimeChart";
import { Scroll } from "../../components/Scroll";
import { Segments } from "../../components/Segments";
import { formatFigure, micros, percent, ratio } from "../../lib/format";
import { clock } from "../../lib/time";
import { classesQuery } from "../../policies/queries";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { classesHistoryQuery } from "../queries";
import { useSteps } from "../timeseries/usePoints";
import {
  attainedPercent,
  type ClassReport,
  classColour,
  classLines,
  classPoints,
  type Percentile,
  type PolicyClasses,
  SOURCES,
} from "./classHistory";
import styles from "./serviceClasses.module.css";

const STALE_MS = 5000;

/** Attainment of the service classes of active policies, now and over the shown time range. */
export function ServiceClasses({ view }: { view: NodeView }) {
  const found = useQuery(classesQuery(view.node.id));
  const policies = found.data?.policies ?? [];
  return (
    <section className="card" aria-labelledby="classes-heading">
      <h2>
        <span id="classes-heading">Service classes</span>
        <small>attainment of each class's target</small>
      </h2>
      {found.isError ? (
        <p className={`bad ${nodeStyles.note}`} role="alert">
          {errorMessage(found.error)}
        </p>
      ) : found.data === undefined ? (
        <p className={nodeStyles.note}>Loading service classes.</p>
      ) : policies.length === 0 ? (
        <p className={nodeStyles.note}>
          No service-class policy applies to this node.{" "}
          <Link
            to="/policies/new"
            search={{ kind: "service-class", nodes: String(view.node.id) }}
            className={styles.inText}
          >
            Create one
          </Link>
        </p>
      ) : (
        policies.map((policy) => (
          <OfPolicy
            key={policy.policy_id}
            view={view}
            policy={policy}
            other={policies.find(({ policy_id, at }) => policy_id !== policy.policy_id && at !== null)}
          />
        ))
      )}
    </section>
  );
}

/** other: another policy that the agent reports on; a node has one gate, controlled by one policy at a time. */
type PolicyProps = { view: NodeView; policy: PolicyClasses; other: PolicyClasses | undefined };

function OfPolicy({ view, policy, other }: PolicyProps) {
  const { policy_id, name, version, mode, spec } = policy;
  const isStale = useIsStale(view, policy.at);
  return (
    <article className={styles.policy} aria-label={`Classes of ${name}`}>
      <h3>
        <Link to="/policies/$policyId" params={{ policyId: policy_id }}>
          {name}
        </Link>{" "}
        <span className="muted">v{version}</span> <span className="tag">{mode}</span>
        <span className="muted">
          window {spec.window_s} s; gate: {spec.slots === 0 ? "one slot per CPU" : `${spec.slots} slots`}
          {spec.weights.length > 0 && `; sets ${spec.weights.join(", ")}`}
        </span>
        <span className="grow" />
        {policy.at === null ? (
          <span className={`tag ${other === undefined ? "" : "warn"}`}>
            {other === undefined ? "no data yet" : `inactive: ${other.name} controls the gate`}
          </span>
        ) : (
          <span className={`tag ${isStale ? "warn" : ""}`} title="In the node's clock">
            as of {clock(Date.parse(policy.at))}
          </span>
        )}
      </h3>
      <Scroll label={`Classes of ${name}`}>
        <table className={`table ${styles.figures}`}>
          <thead>
            <tr>
              <th>class</th>
              <th className="n" title="P: target share of the class's requests to serve">
                P
              </th>
              <th title="S ÷ N beside P">attained</th>
              <th
                className="n"
                title="F = S ÷ (N × P): 1 meets the target; the class with the lowest F is served first"
              >
                F
              </th>
              <th className="n" title="Requests in the window">
                N
              </th>
              <th className="n" title="Requests served, within the deadline if one is set">
                S
              </th>
              <th>source</th>
              <th className="n">waiting</th>
              <th className="n">active</th>
              <th className="n">p50</th>
              <th className="n">p95</th>
              <th className="n">p99</th>
              <th className="n" title="At the gate">
                longest wait
              </th>
              <th className="n" title="Processes that match the class now">
                processes
              </th>
            </tr>
          </thead>
          <tbody>
            {spec.classes.map((one, place) => (
              <Row
                key={one.name}
                name={one.name}
                target={one.target_percent}
                deadlineMs={one.deadline_ms ?? null}
                colour={classColour(place, spec.classes.length)}
                report={policy.reported?.find((other) => other.name === one.name)}
              />
            ))}
          </tbody>
        </table>
      </Scroll>
      <Lines view={view} policy={policy} />
    </article>
  );
}

/** Whether the last report is older than 5 s in the node's clock. */
function useIsStale(view: NodeView, at: string | null): boolean {
  useSteps(view.window, 0);
  return at !== null && view.window.now() - Date.parse(at) > STALE_MS;
}

type RowProps = {
  name: string;
  target: number;
  deadlineMs: number | null;
  colour: string;
  report: ClassReport | undefined;
};

function Row({ name, target, deadlineMs, colour, report }: RowProps) {
  const head = (
    <>
      <th scope="row">
        <i className={styles.swatch} style={{ background: colour }} aria-hidden="true" /> {name}
      </th>
      <td className="n">
        {target} %{deadlineMs !== null && <span className="muted"> in {deadlineMs} ms</span>}
      </td>
    </>
  );
  if (report === undefined || report.source === null) {
    const why =
      report === undefined
        ? "No report from the agent."
        : "No requests at the gate and no other source of request counts.";
    return (
      <tr>
        {head}
        <td colSpan={11} className={`hatched ${styles.unknown}`}>
          <span>{why}</span>
        </td>
        <td className="n">{report?.tasks ?? "–"}</td>
      </tr>
    );
  }
  const share = attainedPercent(report);
  return (
    <tr>
      {head}
      <td>
        <span className={styles.bar} title={`${report.satisfied} of ${report.requests}, target ${target} %`}>
          {share !== null && <i style={{ width: `${share}%`, background: colour }} />}
          <b style={{ left: `${target}%` }} />
        </span>{" "}
        <span className={styles.share}>{formatFigure(percent(share))}</span>
      </td>
      <td className={`n ${share !== null && report.f < 1 ? "warn" : ""}`}>
        {share === null ? <span className="muted">no request</span> : formatFigure(ratio(report.f))}
      </td>
      <td className="n">{report.requests.toLocaleString("en")}</td>
      <td className="n">{report.satisfied.toLocaleString("en")}</td>
      <td title={SOURCES[report.source]?.about}>{SOURCES[report.source]?.label ?? report.source}</td>
      <td className="n">{report.waiting}</td>
      <td className="n">{report.active}</td>
      <td className="n">{formatFigure(micros(report.p50_us))}</td>
      <td className="n">{formatFigure(micros(report.p95_us))}</td>
      <td className="n">{formatFigure(micros(report.p99_us))}</td>
      <td className="n">{formatFigure(micros(report.longest_wait_us))}</td>
      <td className="n">{report.tasks}</td>
    </tr>
  );
}

const PERCENTILES: { value: Percentile; label: string }[] = [
  { value: "p50_us", label: "p50" },
  { value: "p95_us", label: "p95" },
  { value: "p99_us", label: "p99" },
];

/** Charts of F and one response-time percentile over the shown time range, one line per class. */
function Lines({ view, policy }: { view: NodeView; policy: PolicyClasses }) {
  const { node, window, past, marks, cursor, zoom, hold } = view;
  const [percentile, setPercentile] = useState<Percentile>("p95_us");
  const step = useSteps(window, 1);
  const history = useQuery(classesHistoryQuery(node.id, past, window));
  const points = useMemo(
    () => classPoints(history.data, policy.policy_id, past === null),
    [history.data, policy.policy_id, past],
  );
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is mutated in place; step changes with it.
  const axis = useMemo(
    () => ({ range: past ?? window.range(), marks, cursor, onZoom: zoom, onHold: hold }),
    [past, window, marks, cursor, zoom, hold, step],
  );
  const names = policy.spec.classes.map(({ name }) => name).join(" ");
  const [f, response] = useMemo(
    () => [classLines(names.split(" "), "f"), classLines(names.split(" "), percentile)],
    [names, percentile],
  );
  const label = PERCENTILES.find(({ value }) => value === percentile)?.label;
  const absent = history.isPending ? "Loading history." : "No requests in this time range.";
  return (
    <>
      {history.isError && (
        <p className={`bad ${nodeStyles.note}`} role="alert">
          {errorMessage(history.error)}
        </p>
      )}
      <div className={styles.choice}>
        <span className="muted">Response times</span>
        <Segments label="Percentile" value={percentile} options={PERCENTILES} onChange={setPercentile} />
      </div>
      <div className={styles.charts}>
        <TimeChart
          title={`F of ${policy.name}`}
          lines={f}
          points={points}
          format={ratio}
          unit=""
          axis={axis}
          absent={absent}
          level={1}
        />
        <TimeChart
          title={`Response time ${label} of ${policy.name}`}
          lines={response}
          points={points}
          format={micros}
          unit="µs"
          axis={axis}
          absent={absent}
        />
      </div>
    </>
  );
}
