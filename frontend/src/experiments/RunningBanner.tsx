import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { SimulatedTagOf } from "../components/NodeTags";
import { duration } from "../lib/format";
import { arrivalOf, useRemaining } from "../shell/ChangeBanner";
import styles from "../shell/shell.module.css";
import { runningQuery } from "./queries";
import type { Summary } from "./types";

const MAX_SHOWN = 3;

/** The running experiments except the one whose page is open. */
function useRunning(): Summary[] {
  const { experimentId } = useParams({ strict: false });
  return (useQuery(runningQuery).data?.experiments ?? []).filter(({ id }) => id !== experimentId);
}

/** Banner of running experiments; their changes need no confirmation. */
export function RunningBanners() {
  const running = useRunning();
  running.forEach(arrivalOf); // of those that are not shown yet, too
  if (running.length === 0) return null;
  return (
    <section className={styles.banners} aria-label="Running experiments">
      {running.slice(0, MAX_SHOWN).map((experiment) => (
        <Running key={experiment.id} experiment={experiment} />
      ))}
      {running.length > MAX_SHOWN && (
        <div className={styles.banner}>
          <span>
            {running.length - MAX_SHOWN} more running experiments:{" "}
            <Link to="/experiments" search={{ state: "running" }}>
              show all
            </Link>
          </span>
        </div>
      )}
    </section>
  );
}

function Running({ experiment }: { experiment: Summary }) {
  const remaining = useRemaining(experiment);
  const { id, name, node_id, node_name, runs_done, runs_planned } = experiment;
  return (
    <div className={styles.banner} data-experiment={id}>
      <span>
        <b className="change">An experiment runs on</b>{" "}
        <Link to="/nodes/$nodeId" params={{ nodeId: node_id }}>
          {node_name}
        </Link>
        <SimulatedTagOf nodeId={node_id} />{" "}
        <Link to="/experiments/$experimentId" params={{ experimentId: id }}>
          {name}
        </Link>
      </span>
      <span className="muted">
        run {Math.min(runs_done + 1, runs_planned)} of {runs_planned}
        {remaining === null ? "" : `, about ${duration(remaining)} left`}; all settings are restored after each run
      </span>
    </div>
  );
}
