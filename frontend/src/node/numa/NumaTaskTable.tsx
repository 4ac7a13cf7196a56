import { Button, TextInput } from "@mantine/core";
import { type MouseEvent, useMemo, useRef, useState } from "react";
import { NUMA_TASK_CRITERION } from "../../api/constants";
import { Scroll } from "../../components/Scroll";
import { SortHeading } from "../../components/SortHeading";
import { Unknown } from "../../components/Unknown";
import { useTyped } from "../../components/useTyped";
import { bytes, formatFigure, percent } from "../../lib/format";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { SelectionLink } from "../panel/PanelFrame";
import { useStableOrder } from "../stableOrder";
import { MemoryBar, RunsOn } from "./MemoryBar";
import styles from "./numa.module.css";
import {
  CONTENTION_UNKNOWN,
  factor,
  filterEntries,
  memoryShares,
  type NumaEntry,
  runsOn,
  sortEntries,
  type TaskColumn,
  taskSelection,
  whyUnknown,
} from "./numaTasks";

const SHOWN = 12;
const MORE = 50;
/** Row height, to reserve space for the most rows so far: content below does not move. */
const ROW_PX = 26;
/** A run time from which it is highlighted, the least speed-up for which the policy moves a process by default. */
const SLOW = 1.1;

const HEADINGS: { column: TaskColumn; label: string; title: string; className: string }[] = [
  { column: "name", label: "process", title: "Name and PID", className: "" },
  { column: "cpus", label: "CPUs", title: "CPU time of the last interval, in CPUs", className: "n" },
  { column: "memory", label: "memory by node", title: "Resident memory; sorted by its size", className: "" },
  { column: "remote", label: "remote", title: "Share of its memory on nodes where it does not run", className: "n" },
  {
    column: "time",
    label: "run time",
    title: "Predicted: ×1.00 with all memory local and no contention",
    className: "n",
  },
  {
    column: "contention",
    label: "contention",
    title: "Delay by other processes' memory traffic, as a factor of its run time",
    className: "n",
  },
];

type Props = { view: NodeView; entries: NumaEntry[]; bandwidthUnknown: string | null };

/** Processes with their memory by NUMA node; a click opens the panel of one. */
export function NumaTaskTable({ view, entries, bandwidthUnknown }: Props) {
  const { tasks: sort, process: text = "" } = view.search;
  const { typed, type } = useTyped(text, (process) => view.navigate({ process: process || undefined }));
  const [shown, setShown] = useState(SHOWN);
  const found = useMemo(
    () => sortEntries(filterEntries(entries, text), sort).map((entry) => ({ key: taskSelection(entry.task), entry })),
    [entries, text, sort],
  );
  const ordered = useStableOrder(found, `.${styles.tasks}`, `${sort} ${text}`);
  const visible = ordered.slice(0, shown);
  const maxRows = useRef(0);
  maxRows.current = Math.max(maxRows.current, visible.length);
  const heading = ({ column, ...rest }: (typeof HEADINGS)[number]) => (
    <SortHeading key={column} {...{ column, sort, ...rest }} onSort={(tasks) => view.navigate({ tasks })} />
  );
  if (entries.length === 0) return <p className={nodeStyles.note}>No process {NUMA_TASK_CRITERION}.</p>;
  return (
    <>
      <div className={styles.filter}>
        <TextInput
          aria-label="Filter processes"
          placeholder="Filter by name, PID, user or unit"
          value={typed}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => type(event.currentTarget.value)}
        />
        <span className="muted" role="status">
          {found.length === entries.length ? "" : `${found.length} of `}
          {entries.length} {entries.length === 1 ? "process" : "processes"}
          {sort === undefined && ", largest remote memory first"}
        </span>
        <span className={styles.mark}>
          <i aria-hidden="true" /> where it runs
        </span>
      </div>
      <div style={{ minHeight: ROW_PX * (maxRows.current + 1) }}>
        <Scroll label="Processes by NUMA node">
          <table className={`table ${styles.tasks}`}>
            <thead>
              <tr>
                {HEADINGS.slice(0, 2).map(heading)}
                <th title="NUMA nodes of the CPUs where it runs">runs on</th>
                {HEADINGS.slice(2).map(heading)}
              </tr>
            </thead>
            <tbody>
              {visible.map(({ key, entry }) => (
                <Row key={key} view={view} sel={key} entry={entry} bandwidthUnknown={bandwidthUnknown} />
              ))}
            </tbody>
          </table>
        </Scroll>
        <Reasons of={visible.map(({ entry }) => entry)} />
        {found.length === 0 && <p className={nodeStyles.note}>No process matches “{text}”.</p>}
        {ordered.length > shown && (
          <div className={nodeStyles.note}>
            <Button onClick={() => setShown(shown + MORE)}>Show {Math.min(MORE, ordered.length - shown)} more</Button>
          </div>
        )}
      </div>
    </>
  );
}

type RowProps = { view: NodeView; sel: string; entry: NumaEntry; bandwidthUnknown: string | null };

function Row({ view, sel, entry, bandwidthUnknown }: RowProps) {
  const { task, remote_share, run_time, contention } = entry;
  const shares = memoryShares(task);
  const here = runsOn(task);
  const why = whyUnknown(task);
  const open = ({ target }: MouseEvent) => {
    if (target instanceof Element && target.closest("button") === null) view.navigate({ sel });
  };
  const details = [task.command, task.user, task.unit ?? task.cgroup, `may run on CPUs ${task.affinity}`];
  return (
    <tr data-selected={view.search.sel === sel || undefined} onClick={open}>
      <td title={details.filter(Boolean).join(" · ")} className={styles.name}>
        <SelectionLink view={view} sel={sel}>
          {task.name}
        </SelectionLink>{" "}
        <span className="muted">{task.pid}</span>
      </td>
      <td className="n">{task.cpu_share.toFixed(2)}</td>
      <td>
        <RunsOn task={task} />
      </td>
      <td>
        <span className={styles.split}>
          <span className={`n ${styles.size}`}>{formatFigure(bytes(task.rss_bytes))}</span>
          {shares === null ? <Reason why={why} /> : <MemoryBar shares={shares} here={here} />}
        </span>
      </td>
      <td className="n">{remote_share === null ? <Unknown why={why} /> : formatFigure(percent(100 * remote_share))}</td>
      <td className={`n ${run_time !== null && run_time >= SLOW ? "warn" : ""}`}>
        {run_time === null ? <Unknown why={why} /> : factor(run_time)}
      </td>
      <td className="n">
        {contention === null ? (
          <Unknown why={bandwidthUnknown ?? (shares === null || task.cpu_share === 0 ? why : CONTENTION_UNKNOWN)} />
        ) : (
          contention.toFixed(2)
        )}
      </td>
    </tr>
  );
}

/** The distinct reasons why the memory of shown processes is unknown. */
function Reasons({ of }: { of: NumaEntry[] }) {
  const reasons = [...new Set(of.flatMap(({ task }) => (task.bytes_by_node === null ? [whyUnknown(task)] : [])))];
  if (reasons.length === 0) return null;
  return (
    <p className={styles.reason}>
      <Unknown /> {reasons.join(" ")}
    </p>
  );
}

/** A hatched bar with the reason why a process's memory is unknown. */
function Reason({ why }: { why: string }) {
  return (
    <span className={`hatched ${styles.why}`} title={why}>
      <span>{why}</span>
    </span>
  );
}
