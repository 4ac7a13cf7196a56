import { useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { errorMessage } from "../api/client";
import { formatCount } from "../lib/format";
import { clock } from "../lib/time";
import styles from "./changes.module.css";
import { type LogEntry, logPages, searchOfGroup } from "./queries";
import type { ChangesSearch } from "./search";
import { statusWords } from "./state";
import { titleWords } from "./words";

const MAX_SHOWN = 20;

/** The newest moves of a policy or an experiment in an hour, with a link to all of them. */
export function Group({ entry, search }: { entry: LogEntry; search: ChangesSearch }) {
  const each = searchOfGroup(search, entry);
  const { data, error } = useInfiniteQuery(logPages(each));
  const { policy_id, experiment_id } = entry.change;
  const moves = data?.pages[0]?.entries.slice(0, MAX_SHOWN);
  return (
    <div className={styles.details}>
      {error !== null && <p className="bad">{errorMessage(error)}</p>}
      <ul className={styles.moves} aria-busy={moves === undefined}>
        {moves?.map(({ change }) => {
          const { what, values } = titleWords(change);
          const { text, tone } = statusWords(change);
          return (
            <li key={change.id}>
              <span className="muted">{clock(Date.parse(change.created_at))}</span> <b>{change.node_name}</b>{" "}
              <Link to="/changes" search={{ ...each, change: change.id }}>
                {what} {values}
              </Link>{" "}
              <span className={tone}>{text}</span>
            </li>
          );
        })}
      </ul>
      <p className={styles.links}>
        <Link to="/changes" search={each}>
          Show all {formatCount(entry.changes, "move")} one by one
        </Link>
        {policy_id !== null && (
          <Link to="/policies/$policyId" params={{ policyId: policy_id }}>
            Policy
          </Link>
        )}
        {experiment_id !== null && (
          <Link to="/experiments/$experimentId" params={{ experimentId: experiment_id }}>
            Experiment
          </Link>
        )}
      </p>
    </div>
  );
}
