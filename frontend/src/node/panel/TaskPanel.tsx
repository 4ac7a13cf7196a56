import { useQuery } from "@tanstack/react-query";
import { useEffect } from "react";
import { NUMA_TASK_CRITERION } from "../../api/constants";
import { Unknown } from "../../components/Unknown";
import { parseCpuList } from "../../lib/cpulist";
import { bytes, duration, formatCount, formatFigure, percent } from "../../lib/format";
import { latestDecisionsQuery } from "../../policies/queries";
import { ChangeSteps } from "../changes/ChangeSteps";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { MemoryBar, NodeLabel, RunsOn } from "../numa/MemoryBar";
import { MoveOptions } from "../numa/MoveOptions";
import { latestChange, ownersOf } from "../numa/moveOptions";
import styles from "../numa/numa.module.css";
import {
  CONTENTION_UNKNOWN,
  factor,
  memoryShares,
  type NumaEntry,
  runsOn,
  taskSelection,
  whyUnknown,
} from "../numa/numaTasks";
import { numaQuery } from "../queries";
import { PanelFrame, PropertyList } from "./PanelFrame";

type Props = { view: NodeView; pid: number; started: number | null };

/**
 * Panel of a process: properties, owners, memory by NUMA node, and moves to other nodes. started: in ticks, null for the
 * process that has the PID now, whose start time is then added to the URL.
 */
export function TaskPanel({ view, pid, started }: Props) {
  const numa = useQuery(numaQuery(view.node.id));
  const { data: decisions = [] } = useQuery(latestDecisionsQuery(view.node.id));
  const entry = numa.data?.tasks.find(({ task }) => task.pid === pid);
  const found = entry?.task.started_ticks;
  const { navigate } = view;
  useEffect(() => {
    if (started === null && found !== undefined)
      navigate({ sel: taskSelection({ pid, started_ticks: found }) }, { replace: true });
  }, [navigate, pid, started, found]);
  if (entry === undefined || (started !== null && found !== started))
    return (
      <PanelFrame view={view} title={`Process ${pid}`}>
        <p className="muted">
          {numa.isPending
            ? "Loading the process."
            : entry === undefined
              ? view.topology.numa_nodes.length < 2
                ? "This node has a single NUMA node, so the memory of its processes is not read."
                : `This process has ended, or is not one that ${NUMA_TASK_CRITERION}.`
              : "This process has ended; its PID now belongs to another one."}
        </p>
      </PanelFrame>
    );
  const { task } = entry;
  const skewMs = view.node.clock_skew_ms ?? 0;
  const latest = latestChange(view.changes, pid, Date.parse(numa.data?.at ?? "") - skewMs - 1000 * task.age_s);
  return (
    <PanelFrame view={view} title={`${task.name} (${pid})`} note={task.unit ?? task.command ?? undefined}>
      <Properties
        view={view}
        entry={entry}
        owners={ownersOf(task, latest, decisions, view.inventory?.controllers ?? [])}
      />
      <Memory entry={entry} />
      {task.kernel || task.bound ? (
        <p className={nodeStyles.warnbox}>
          <b>This process cannot be moved.</b> It is a kernel thread.
        </p>
      ) : (
        <MoveOptions view={view} task={task} latest={latest} />
      )}
      {latest !== undefined && <ChangeSteps change={latest} />}
    </PanelFrame>
  );
}

function Properties({ view, entry, owners }: { view: NodeView; entry: NumaEntry; owners: string[] }) {
  const { task, run_time, contention } = entry;
  const isLimited =
    task.mems_allowed !== "" &&
    view.topology.numa_nodes.some(({ id }) => !parseCpuList(task.mems_allowed).includes(id));
  const bandwidthUnknown = useQuery(numaQuery(view.node.id)).data?.bandwidth_unknown;
  return (
    <PropertyList
      of={[
        task.command === null ? null : ["command", <code key="command">{task.command}</code>],
        task.user === null ? null : ["user", task.user],
        task.cgroup === null ? null : ["cgroup", <code key="cgroup">{task.cgroup}</code>],
        ["running for", `${duration(task.age_s)}, ${formatCount(task.threads, "thread")}`],
        [
          "uses",
          <span key="uses">
            {task.cpu_share.toFixed(2)} CPUs {task.cpu_share > 0 && "on "}
            <RunsOn task={task} />
          </span>,
        ],
        ["allowed on CPUs", <code key="affinity">{task.affinity}</code>],
        ["allowed memory", isLimited ? `nodes ${task.mems_allowed} of its cpuset` : "any node"],
        [
          "owner",
          <span key="owner">
            {owners.map((owner) => (
              <div key={owner}>{owner}</div>
            ))}
          </span>,
        ],
        [
          "run time",
          run_time === null ? (
            <Unknown key="time" why={whyUnknown(task)} />
          ) : (
            <span key="time">
              {factor(run_time)} <span className="muted">predicted; ×1.00 = all memory local</span>
            </span>
          ),
        ],
        [
          "contention",
          contention === null ? (
            <Unknown key="c" why={bandwidthUnknown ?? (task.cpu_share === 0 ? whyUnknown(task) : CONTENTION_UNKNOWN)} />
          ) : (
            contention.toFixed(2)
          ),
        ],
      ]}
    />
  );
}

function Memory({ entry: { task, remote_share } }: { entry: NumaEntry }) {
  const shares = memoryShares(task);
  const here = runsOn(task);
  return (
    <>
      <h3>Memory by node</h3>
      {shares === null ? (
        <p>
          {formatFigure(bytes(task.rss_bytes))} on <Unknown /> nodes. <span className="muted">{whyUnknown(task)}</span>
        </p>
      ) : (
        <>
          <MemoryBar shares={shares} here={here} />
          <ul className={styles.byNode}>
            {shares.map(({ node, amount, share }) => (
              <li key={node}>
                <span>
                  <NodeLabel node={node} />
                </span>
                <span>{formatFigure(bytes(amount))}</span>
                <span>{formatFigure(percent(100 * share))}</span>
                <span className="muted">{here.some((one) => one.node === node) && "runs here"}</span>
              </li>
            ))}
          </ul>
          <p className="muted">
            {remote_share !== null && `${formatFigure(percent(100 * remote_share))} remote. `}
            {task.from_cgroup
              ? "Anonymous memory, as its cgroup counts it: it is too large to be read and moved page by page. " +
                "cpuset.mems of the cgroup moves it."
              : task.shared_bytes > 0 &&
                `${formatFigure(bytes(task.shared_bytes))} are shared with other processes and do not move.`}
          </p>
        </>
      )}
    </>
  );
}
