import { Button, NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { errorMessage } from "../api/client";
import { Moment } from "../components/Moment";
import { NodeSelect } from "../components/NodePicker";
import { SimulatedTagOf } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { Scroll } from "../components/Scroll";
import { duration, unbroken } from "../lib/format";
import { kindLabel } from "./experimentSchema";
import styles from "./experiments.module.css";
import { experimentsQuery } from "./queries";
import { STATES } from "./search";
import { experimentState, STATE_TONES } from "./states";
import type { State, Summary } from "./types";

const route = getRouteApi("/shell/experiments");

/** All experiments, newest first, with findings or progress. */
export function ExperimentsPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const experiments = useQuery(experimentsQuery(search));
  const filtered = search.node !== undefined || search.state !== undefined || search.older !== undefined;
  const page = experiments.data;
  const none = page?.experiments.length === 0;
  return (
    <>
      <PageTop title="Experiments">
        <h1>Experiments</h1>
      </PageTop>
      <div className={styles.filter}>
        <NodeSelect
          label="Node"
          none="all"
          nodeId={search.node}
          onChange={(node) => void navigate({ search: { state: search.state, node } })}
        />
        <NativeSelect
          label="State"
          value={search.state ?? ""}
          data={[{ value: "", label: "all" }, ...STATES.map((state) => ({ value: state, label: state }))]}
          onChange={(event) =>
            void navigate({
              search: { node: search.node, state: (event.currentTarget.value || undefined) as State | undefined },
            })
          }
        />
        <span className="grow" />
        <Button
          variant="filled"
          renderRoot={(props) => <Link {...props} to="/experiments/new" search={{ node: search.node }} />}
        >
          New experiment
        </Button>
      </div>
      {experiments.isError && (
        <p className="bad" role="alert">
          {errorMessage(experiments.error)}
        </p>
      )}
      {page === undefined && !experiments.isError && <p className="muted">Loading experiments.</p>}
      {none && filtered && <p>No experiment matches this filter.</p>}
      {none && !filtered && <NoExperiments />}
      {page !== undefined && !none && (
        <section className="card" aria-busy={experiments.isPlaceholderData}>
          <h2>
            Experiments <small>newest first; each node runs one at a time and queues the others</small>
          </h2>
          <List experiments={page.experiments} />
          {(page.older !== null || search.older !== undefined) && (
            <div className={styles.pager}>
              <Button
                disabled={search.older === undefined}
                onClick={() => void navigate({ search: { ...search, older: undefined } })}
              >
                Newest
              </Button>
              <Button
                disabled={page.older === null}
                onClick={() => void navigate({ search: { ...search, older: page.older ?? undefined } })}
              >
                Older
              </Button>
            </div>
          )}
        </section>
      )}
    </>
  );
}

function NoExperiments() {
  return (
    <section className={`card ${styles.empty}`}>
      <h2>There is no experiment yet</h2>
      <div className="body">
        <p>
          An experiment compares settings of one node under one workload in a randomized order of runs. It reports each
          difference with a confidence interval, or the smallest difference that it could have detected. It first
          compares the node with itself. After each run all settings are restored.
        </p>
        <p>
          <Link to="/experiments/new">Choose a node</Link> to start from a template or to compare settings of your
          choice.
        </p>
      </div>
    </section>
  );
}

function List({ experiments }: { experiments: Summary[] }) {
  return (
    <Scroll label="Experiments">
      <table className="table">
        <thead>
          <tr>
            <th>name</th>
            <th>state</th>
            <th>node</th>
            <th className={styles.found}>plan or findings</th>
            <th className="n">runs</th>
            <th>started</th>
            <th className="n">duration</th>
            <th>by</th>
          </tr>
        </thead>
        <tbody>
          {experiments.map((one) => (
            <tr key={one.id}>
              <td className={`wrap ${styles.name}`}>
                <Link to="/experiments/$experimentId" params={{ experimentId: one.id }}>
                  {one.name}
                </Link>{" "}
                <span className="muted">{kindLabel(one.kind)}</span>
              </td>
              <td>
                <span className={`dot ${STATE_TONES[one.state]}`} aria-hidden="true" />
                {experimentState(one)}
              </td>
              <td>
                <Link to="/nodes/$nodeId" params={{ nodeId: one.node_id }}>
                  {one.node_name}
                </Link>{" "}
                <SimulatedTagOf nodeId={one.node_id} />
              </td>
              <td className={`wrap ${styles.found}`}>{unbroken(one.sentence) || <span className="muted">–</span>}</td>
              <td className="n">
                {one.runs_done}
                <span className="muted"> / {one.runs_planned}</span>
              </td>
              <td>
                <Moment at={one.started_at} never="not yet" />
              </td>
              <td className="n">{durationText(one)}</td>
              <td>{one.created_by}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

function durationText({ state, started_at, ended_at, remaining_s }: Summary): string {
  if (state === "running") return remaining_s === null ? "–" : `${duration(remaining_s)} left`;
  return started_at === null || ended_at === null
    ? "–"
    : duration((Date.parse(ended_at) - Date.parse(started_at)) / 1000);
}
