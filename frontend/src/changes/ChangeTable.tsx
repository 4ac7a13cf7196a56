import { Link } from "@tanstack/react-router";
import type { ReactNode } from "react";
import { LogRow, LogTable } from "../components/LogTable";
import { SimulatedTagOf } from "../components/NodeTags";
import { countdown, formatCount } from "../lib/format";
import { zoneName } from "../lib/time";
import { useRemaining } from "../shell/ChangeBanner";
import { ChangeDetails } from "./ChangeDetails";
import { Chip } from "./Chip";
import styles from "./changes.module.css";
import { Group } from "./Group";
import type { Change, LogEntry } from "./queries";
import { StopRow } from "./StopRow";
import type { ChangesSearch } from "./search";
import { entryAfterWords, entryStatusWords, isRedoable, type Words } from "./state";
import { isStop, type LogRow as Row, timeOf } from "./stopRows";
import { changeWords, titleWords } from "./words";

type Props = {
  rows: Row[];
  /** Of the Changes page, for links to it. */
  search: ChangesSearch;
  /** The unfolded change. */
  open: string | undefined;
  /** Unfolds a change, or folds it. */
  onUnfold: (id: string | undefined) => void;
  /** Whether all rows are of one node, which needs no column. */
  isOfNode?: boolean;
};

const COLUMNS = 7;

/** The log of changes, one row each. */
export function ChangeTable({ rows, ...props }: Props) {
  const { isOfNode = false } = props;
  return (
    <LogTable
      label="Changes"
      className={`${styles.changes} ${isOfNode ? styles.ofNode : ""}`}
      columns={isOfNode ? COLUMNS - 1 : COLUMNS}
      head={
        <>
          <th>time, {zoneName(Date.now())}</th>
          {!isOfNode && <th className={styles.node}>node</th>}
          <th>change</th>
          <th className={styles.by}>by</th>
          <th className={styles.state}>state</th>
          <th className={styles.after}>observed after</th>
          <th className={styles.do}>
            <span className="visually-hidden">action</span>
          </th>
        </>
      }
      rows={rows.map((row) => ({
        key: isStop(row) ? `${row.action} ${row.stop}` : row.change.id,
        ms: timeOf(row),
        row: isStop(row) ? <StopRow event={row} /> : <EntryRow entry={row} {...props} />,
      }))}
    />
  );
}

function EntryRow({ entry, search, open, onUnfold, isOfNode = false }: { entry: LogEntry } & Omit<Props, "rows">) {
  const { change } = entry;
  const isOpen = open === change.id;
  const isGroup = entry.changes > 1;
  const { what, values } = titleWords(change);
  return (
    <LogRow
      className={search.undo === change.id ? styles.selected : undefined}
      data-change-row={change.id}
      ms={Date.parse(change.created_at)}
      name={isGroup ? formatCount(entry.changes, "move") : what}
      isOpen={isOpen}
      onToggle={() => onUnfold(isOpen ? undefined : change.id)}
      columns={isOfNode ? COLUMNS - 1 : COLUMNS}
      details={isGroup ? <Group entry={entry} search={search} /> : <ChangeDetails change={change} />}
    >
      {!isOfNode && <NodeCell entry={entry} />}
      <td className={styles.what} title={isGroup ? undefined : change.sentence}>
        {isGroup ? (
          <>
            {formatCount(entry.changes, "move")} <span className={`${styles.short} muted`}>by {change.created_by}</span>
          </>
        ) : (
          <>
            {what} <span className="muted">{values}</span>
          </>
        )}
      </td>
      <td className={styles.by} title={change.created_by}>
        <Author change={change} />
      </td>
      <td>{isGroup ? <Chip {...entryStatusWords(entry)} /> : <State entry={entry} />}</td>
      <td className={styles.after}>
        <After words={entryAfterWords(entry)} />
      </td>
      <td className={styles.do}>{!isGroup && <Action change={change} search={search} />}</td>
    </LogRow>
  );
}

function NodeCell({ entry: { change, nodes } }: { entry: LogEntry }) {
  return (
    <td className={styles.node}>
      {nodes > 1 ? (
        <b>{formatCount(nodes, "node")}</b>
      ) : (
        <>
          <Link to="/nodes/$nodeId" params={{ nodeId: change.node_id }}>
            {change.node_name}
          </Link>{" "}
          <SimulatedTagOf nodeId={change.node_id} />
        </>
      )}
    </td>
  );
}

/** Who made a change: a user, or a link to the policy or the experiment. */
function Author({ change: { policy_id, experiment_id, created_by } }: { change: Change }) {
  if (experiment_id !== null)
    return (
      <Link to="/experiments/$experimentId" params={{ experimentId: experiment_id }}>
        {created_by}
      </Link>
    );
  if (policy_id !== null)
    return (
      <Link to="/policies/$policyId" params={{ policyId: policy_id }}>
        {created_by}
      </Link>
    );
  return created_by;
}

/** A link that opens the preview of an undo, or of a redo. */
function Action({ change, search }: { change: Change; search: ChangesSearch }): ReactNode {
  const isOver = change.undone !== null || (change.state === "rolled_back" && !isRedoable(change));
  if (change.applied_at === null || isOver) return null;
  const label = isRedoable(change) ? "Redo" : "Undo";
  return (
    <Link
      to="/changes"
      search={{ ...search, undo: change.id }}
      resetScroll={false}
      className={styles.action}
      aria-label={`${label} ${changeWords(change.plan.actions).what} on ${change.node_name}`}
    >
      {label}
    </Link>
  );
}

/** The state of a change; of a pending one the time left. */
function State({ entry }: { entry: LogEntry }) {
  const remaining = useRemaining(entry.change);
  const words = entryStatusWords(entry);
  return <Chip {...words} text={remaining === null ? words.text : `${countdown(remaining)} left`} />;
}

function After({ words }: { words: Words | null }) {
  return (
    words && (
      <span className={words.tone} title={words.text}>
        {words.text}
      </span>
    )
  );
}
