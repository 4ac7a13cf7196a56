import { Button, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo, useRef, useState } from "react";
import { errorMessage } from "../../api/client";
import { Scroll } from "../../components/Scroll";
import { SortHeading } from "../../components/SortHeading";
import { Unknown } from "../../components/Unknown";
import { useTyped } from "../../components/useTyped";
import { formatCpuList } from "../../lib/cpulist";
import { bitRate, duration, formatCount, formatFigure, percent } from "../../lib/format";
import { clock } from "../../lib/time";
import { flowsQuery } from "../../policies/queries";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { taskSelection } from "../numa/numaTasks";
import { SelectionLink } from "../panel/PanelFrame";
import { numaQuery } from "../queries";
import { useStableOrder } from "../stableOrder";
import { CoschedulingCells, CoschedulingHeaders, CoschedulingReasons } from "./Coscheduling";
import { type Collapsed, type FlowColumn, groupFlows, searchFlows, sortFlows, sumOf, worstPath } from "./flowRows";
import { indexTopology, localityShares, methodText, type RxPath, rxPathsOf } from "./rxPath";
import styles from "./tasks.module.css";

const SHOWN = 12;
const MORE = 50;
/** Row height, to reserve space for the most rows so far: content below does not move. */
const ROW_PX = 25;

const HEADINGS: { column?: FlowColumn; label: string; className?: string }[] = [
  { column: "task", label: "task" },
  { column: "sockets", label: "sockets", className: "n" },
  { label: "queue" },
  { label: "IRQ" },
  { label: "softirq CPU" },
  { column: "hop", label: "task CPU, cache" },
  { label: "NUMA node" },
  { column: "received", label: "received", className: "n" },
  { column: "sent", label: "sent", className: "n" },
];

/** From task to memory: queue, IRQ and softirq CPU of each process's packets, and hops between caches or NUMA nodes. */
export function NetworkTasks({ view }: { view: NodeView }) {
  const { node, topology, inventory } = view;
  const flows = useQuery(flowsQuery(node.id));
  const places = useMemo(() => indexTopology(topology), [topology]);
  const links = useMemo(
    () => (flows.data === undefined ? [] : rxPathsOf(flows.data.tasks, places, inventory)),
    [flows.data, places, inventory],
  );
  const at = flows.data?.at ?? null;
  return (
    <section className="card" aria-labelledby="tasks-heading">
      <h2 className={nodeStyles.wrap}>
        <span id="tasks-heading">From task to memory</span>
        <small>network tasks, {at === null ? "no data yet" : `as of ${clock(Date.parse(at))}`}</small>
        {flows.data !== undefined && at !== null && (
          <span
            className={`tag ${flows.data.exact ? "ok" : ""}`}
            title={
              flows.data.exact
                ? "Counted by eBPF, all protocols"
                : "Bytes of the kernel's TCP sockets; UDP is not measured"
            }
          >
            {flows.data.exact ? "exact, with UDP" : "TCP only"}
          </span>
        )}
        <span className="grow" />
        <Locality links={links} />
      </h2>
      {flows.isError ? (
        <p className={`bad ${nodeStyles.note}`} role="alert">
          {errorMessage(flows.error)}
        </p>
      ) : flows.data === undefined || at === null ? (
        <div className={`hatched ${styles.noTasks}`}>
          <span>{flows.data === undefined ? "Loading tasks." : "The agent has not reported any task yet."}</span>
        </div>
      ) : links.length === 0 ? (
        <p className={nodeStyles.note}>
          No process uses {flows.data.exact ? "the network" : "TCP; UDP is not measured on this node"}.
        </p>
      ) : (
        <Flows view={view} links={links} />
      )}
    </section>
  );
}

/** The searched and sorted rows of all processes. */
function Flows({ view, links }: { view: NodeView; links: RxPath[] }) {
  const { find = "", flows: sort } = view.search;
  const { typed, type } = useTyped(find, (text) => view.navigate({ find: text || undefined }));
  const { rows, collapsed } = useMemo(() => groupFlows(searchFlows(links, find)), [links, find]);
  const sorted = useMemo(() => sortFlows(rows, sort), [rows, sort]);
  const ordered = useStableOrder(sorted, `.${styles.chain}`, `${sort} ${find}`);
  const numa = useQuery(numaQuery(view.node.id)).data;
  const panels = useMemo(() => new Set(numa?.tasks.map((entry) => taskSelection(entry.task))), [numa]);
  const [shown, setShown] = useState(SHOWN);
  const maxRows = useRef(0);
  const visible = ordered.slice(0, shown);
  maxRows.current = Math.max(maxRows.current, visible.length);
  const isCoscheduled = links.some(({ task }) => task.coscheduled !== null);
  const reasons = visible.flatMap(({ paths }) => paths);
  return (
    <>
      <div className={styles.filter}>
        <TextInput
          aria-label="Search tasks"
          placeholder="Search: nginx, ens5 rx-0, IRQ 31, CPU 47"
          value={typed}
          autoComplete="off"
          spellCheck={false}
          onChange={(event) => type(event.currentTarget.value)}
        />
        <span className="muted" role="status">
          {formatCount(rows.length, "task")}
          {sort === undefined && ", most traffic first"}
        </span>
      </div>
      <div style={{ minHeight: ROW_PX * (maxRows.current + 1) }}>
        <Scroll label="RX placements of tasks">
          <table className={`table ${styles.chain}`}>
            <thead>
              <tr>
                {HEADINGS.map(({ column, label, className }) =>
                  column === undefined ? (
                    <th key={label} className={className}>
                      {label}
                    </th>
                  ) : (
                    <SortHeading
                      key={label}
                      {...{ column, label, className, sort: view.search.flows }}
                      onSort={(flows) => view.navigate({ flows })}
                    />
                  ),
                )}
                {isCoscheduled && <CoschedulingHeaders />}
              </tr>
            </thead>
            <tbody>
              {visible.map(({ key, task, paths }) => (
                <Process
                  key={key}
                  view={view}
                  paths={paths}
                  hasPanel={panels.has(taskSelection(task))}
                  isCoscheduled={isCoscheduled}
                />
              ))}
            </tbody>
          </table>
        </Scroll>
        {rows.length === 0 && collapsed.length === 0 && <p className={nodeStyles.note}>No task matches “{find}”.</p>}
        {ordered.length > shown && (
          <div className={nodeStyles.note}>
            <Button onClick={() => setShown(shown + MORE)}>Show {Math.min(MORE, ordered.length - shown)} more</Button>
          </div>
        )}
        {collapsed.map((group) => (
          <CollapsedFlows key={group.reason} of={group} />
        ))}
        <Reasons links={reasons} />
        <CoschedulingReasons tasks={visible.map(({ task }) => task)} />
      </div>
    </>
  );
}

/** One line for connections without a queue, with the reason; opens to the processes. */
function CollapsedFlows({ of: { reason, paths, sockets, processes } }: { of: Collapsed }) {
  return (
    <details className={styles.collapsed}>
      <summary>
        {formatCount(sockets, "socket")} of {formatCount(processes, "task")} without a path,{" "}
        {formatFigure(bitRate(sumOf(paths, "rx_bytes_per_s")))} received,{" "}
        {formatFigure(bitRate(sumOf(paths, "tx_bytes_per_s")))} sent: {reason}
      </summary>
      <ul>
        {paths.slice(0, MORE).map(({ key, task, placement }) => (
          <li key={key}>
            {task.name} <span className="muted">{task.pid}</span> {placement.netdev || "unknown device"},{" "}
            {formatCount(placement.sockets, "socket")}, {formatFigure(bitRate(placement.rx_bytes_per_s))} received
          </li>
        ))}
        {paths.length > MORE && <li className="muted">and {paths.length - MORE} more</li>}
      </ul>
    </details>
  );
}

function Locality({ links }: { links: RxPath[] }) {
  const shares = localityShares(links);
  if (shares === null) return null;
  return (
    <small title="Share of received bytes whose softirq CPU and task CPU share a cache">
      {shares.unknown < 1 && (
        <>
          cache-local <b>{formatFigure(percent(100 * shares.local))}</b>
          {" · "}
          <span className={shares.remote > 0 ? "bad" : undefined}>
            remote {formatFigure(percent(100 * shares.remote))}
          </span>
          {shares.unknown > 0 && " · "}
        </>
      )}
      {shares.unknown > 0 && `unknown ${formatFigure(percent(100 * shares.unknown))}`}
    </small>
  );
}

type ProcessProps = { view: NodeView; paths: RxPath[]; hasPanel: boolean; isCoscheduled: boolean };

/** A process's row; with several queues it opens to a row for each. */
function Process(props: ProcessProps) {
  const [isOpen, setOpen] = useState(false);
  const { paths } = props;
  if (paths.length === 1) return <Row {...props} />;
  return (
    <>
      <Row {...props} isOpen={isOpen} onToggle={() => setOpen(!isOpen)} />
      {isOpen && paths.map((path) => <Row key={path.key} {...props} paths={[path]} isPart />)}
    </>
  );
}

type RowProps = ProcessProps & { isPart?: boolean; isOpen?: boolean; onToggle?: () => void };

/** One or several RX placements of a process: what they have in common, the longest hop, and the sums. */
function Row({ view, paths, hasPanel, isCoscheduled, isPart = false, isOpen, onToggle }: RowProps) {
  const worst = worstPath(paths);
  if (worst === undefined) return null;
  const { task, placement, hop, nodes, why } = worst;
  const selected = view.search.sel;
  const irqs = [...new Set(paths.flatMap((path) => path.placement.irq ?? []))];
  const cpus = [...new Set(paths.flatMap((path) => path.placement.cpu ?? []))];
  const here = irqs.some((irq) => selected === `irq:${irq}`) || cpus.some((cpu) => selected === `cpu:${cpu}`);
  return (
    <tr data-selected={here || undefined} data-part={isPart || undefined}>
      <td title={detailsOf(task)}>
        <SelectionLink view={view} sel={hasPanel ? taskSelection(task) : `cpu:${task.cpu}`}>
          {task.name}
        </SelectionLink>{" "}
        <span className="muted">{task.pid}</span>
      </td>
      <td className="n">{sumOf(paths, "sockets").toLocaleString("en")}</td>
      <td>
        {onToggle === undefined ? (
          <SelectionLink view={view} sel={`nic:${placement.netdev}`}>
            {placement.netdev} {placement.queue}
          </SelectionLink>
        ) : (
          <button type="button" className="link" aria-expanded={isOpen} onClick={onToggle}>
            {isOpen ? "▾" : "▸"} {formatCount(paths.length, "queue")}
          </button>
        )}
      </td>
      <td>{irqs.length === 0 ? <Unknown why={why.irq} /> : <Numbers view={view} kind="irq" numbers={irqs} />}</td>
      <td title={methodText(placement.how)}>
        <Numbers view={view} kind="cpu" numbers={cpus} />{" "}
        {paths.some((path) => path.placement.rfs) && (
          <span className="tag" title="RFS passes the packets on to the CPU on which the task reads them">
            RFS
          </span>
        )}
      </td>
      <td>
        <Numbers view={view} kind="cpu" numbers={[task.cpu]} />{" "}
        {hop === null ? (
          <Unknown why={why.hop} />
        ) : (
          <span className={hop.crosses === null ? "ok" : `${styles.wrong} ${hop.crosses === "numa" ? "bad" : "warn"}`}>
            {hop.label}
          </span>
        )}
      </td>
      <td>
        <Nodes of={nodes} />
        {paths.some(({ offNode }) => offNode) && (
          <span className={`${styles.wrong} warn`}>off the NIC's NUMA node</span>
        )}
      </td>
      <td className="n">{formatFigure(bitRate(sumOf(paths, "rx_bytes_per_s")))}</td>
      <td className="n">{formatFigure(bitRate(sumOf(paths, "tx_bytes_per_s")))}</td>
      {isCoscheduled && <CoschedulingCells of={isPart ? null : task.coscheduled} />}
    </tr>
  );
}

function detailsOf(task: RxPath["task"]): string {
  const details = [
    task.bound ? "a kernel thread bound to its CPU" : `may run on CPUs ${task.affinity}`,
    formatCount(task.threads, "thread"),
    `${formatFigure(percent(100 * task.cpu_share))} of a CPU`,
    task.idle_s >= 1 ? `idle for ${duration(task.idle_s)}` : "",
    task.cgroup ?? "",
  ];
  return details.filter(Boolean).join(" · ");
}

/** A link to one IRQ or CPU, or the list of several. */
function Numbers({ view, kind, numbers }: { view: NodeView; kind: "irq" | "cpu"; numbers: number[] }) {
  const [first] = numbers;
  const text = `${kind === "irq" ? "" : numbers.length === 1 ? "CPU " : "CPUs "}${formatCpuList(numbers)}`;
  return numbers.length === 1 ? (
    <SelectionLink view={view} sel={`${kind}:${first}`}>
      {text}
    </SelectionLink>
  ) : (
    <span>{text}</span>
  );
}

/** The NUMA node if all are on one, else those of the softirq CPU and the task, after the NIC's where that differs. */
function Nodes({ of: { nic, softirq, task } }: { of: RxPath["nodes"] }) {
  const known = [nic, softirq, task].filter((node) => node !== null);
  if (known.length === 0) return <Unknown why="The kernel reports no NUMA nodes." />;
  if (new Set(known).size === 1) return <>{known[0]}</>;
  return (
    <span className={softirq !== null && softirq !== task ? "bad" : undefined} title="softirq CPU → task">
      {nic !== null && nic !== softirq && `NIC ${nic} → `}
      {softirq ?? "?"} → {task ?? "?"}{" "}
    </span>
  );
}

/** The distinct reasons for unknown values. */
function Reasons({ links }: { links: RxPath[] }) {
  const reasons = [...new Set(links.flatMap(({ why }) => Object.values(why)))];
  if (reasons.length === 0) return null;
  return (
    <p className={styles.reasons}>
      <Unknown /> {reasons.join(" ")}
    </p>
  );
}
