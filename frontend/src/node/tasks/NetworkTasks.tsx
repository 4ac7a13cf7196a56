import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useRef, useState } from "react";
import { errorMessage } from "../../api/client";
import { Scroll } from "../../components/Scroll";
import { Unknown } from "../../components/Unknown";
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
import { indexTopology, localityShares, methodText, type RxPath, rxPathsOf } from "./rxPath";
import styles from "./tasks.module.css";

const SHOWN = 12;
/** Row height, to reserve space for the most rows so far: content below does not move. */
const ROW_PX = 25;

/** RX placements: queue, IRQ and softirq CPU of each task's packets, and hops between caches or NUMA nodes. */
export function NetworkTasks({ view }: { view: NodeView }) {
  const { node, topology, inventory } = view;
  const flows = useQuery(flowsQuery(node.id));
  const places = useMemo(() => indexTopology(topology), [topology]);
  const links = useMemo(
    () => (flows.data === undefined ? [] : rxPathsOf(flows.data.tasks, places, inventory)),
    [flows.data, places, inventory],
  );
  const ordered = useStableOrder(links, `.${styles.chain}`);
  const numa = useQuery(numaQuery(node.id)).data;
  const panels = useMemo(() => new Set(numa?.tasks.map((entry) => taskSelection(entry.task))), [numa]);
  const [shown, setShown] = useState(SHOWN);
  const maxRows = useRef(0);
  const visible = ordered.slice(0, shown);
  maxRows.current = Math.max(maxRows.current, visible.length);
  const at = flows.data?.at ?? null;
  const isCoscheduled = links.some(({ task }) => task.coscheduled !== null);
  return (
    <section className="card" aria-labelledby="tasks-heading">
      <h2 className={nodeStyles.wrap}>
        <span id="tasks-heading">Network tasks</span>
        <small>RX placement; {at === null ? "no data yet" : `as of ${clock(Date.parse(at))}`}</small>
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
      ) : ordered.length === 0 ? (
        <p className={nodeStyles.note}>
          No process uses {flows.data.exact ? "the network" : "TCP; UDP is not measured on this node"}.
        </p>
      ) : (
        <div style={{ minHeight: ROW_PX * (maxRows.current + 1) }}>
          <Scroll label="RX placements of tasks">
            <table className={`table ${styles.chain}`}>
              <thead>
                <tr>
                  <th>task</th>
                  <th className="n">sockets</th>
                  <th>queue</th>
                  <th>IRQ</th>
                  <th>softirq CPU</th>
                  <th>task CPU, cache</th>
                  <th>NUMA node</th>
                  <th className="n">received</th>
                  <th className="n">sent</th>
                  {isCoscheduled && <CoschedulingHeaders />}
                </tr>
              </thead>
              <tbody>
                {visible.map((link) => (
                  <Row
                    key={link.key}
                    view={view}
                    link={link}
                    hasPanel={panels.has(taskSelection(link.task))}
                    isCoscheduled={isCoscheduled}
                  />
                ))}
              </tbody>
            </table>
          </Scroll>
          <Reasons links={visible} />
          <CoschedulingReasons tasks={visible.map(({ task }) => task)} />
          {ordered.length > shown && (
            <div className={nodeStyles.note}>
              <Button onClick={() => setShown(shown + 50)}>Show {Math.min(50, ordered.length - shown)} more</Button> (
              {formatCount(ordered.length, "RX placement")} in total)
            </div>
          )}
        </div>
      )}
    </section>
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

type RowProps = { view: NodeView; link: RxPath; hasPanel: boolean; isCoscheduled: boolean };

function Row({ view, link: { task, placement, hop, nodes, offNode, why }, hasPanel, isCoscheduled }: RowProps) {
  const selected = view.search.sel;
  const cpu = (number: number, children: ReactNode) => (
    <SelectionLink view={view} sel={`cpu:${number}`}>
      {children}
    </SelectionLink>
  );
  const here = selected === `irq:${placement.irq}` || selected === `cpu:${placement.cpu}`;
  const details = [
    task.bound ? "a kernel thread bound to its CPU" : `may run on CPUs ${task.affinity}`,
    formatCount(task.threads, "thread"),
    `${formatFigure(percent(100 * task.cpu_share))} of a CPU`,
    task.idle_s >= 1 ? `idle for ${duration(task.idle_s)}` : "",
    task.cgroup ?? "",
  ];
  return (
    <tr data-selected={here || undefined}>
      <td title={details.filter(Boolean).join(" · ")}>
        <SelectionLink view={view} sel={hasPanel ? taskSelection(task) : `cpu:${task.cpu}`}>
          {task.name}
        </SelectionLink>{" "}
        <span className="muted">{task.pid}</span>
      </td>
      <td className="n">{placement.sockets.toLocaleString("en")}</td>
      <td>
        {placement.netdev !== "" && (
          <SelectionLink view={view} sel={`nic:${placement.netdev}`}>
            {placement.queue === null ? placement.netdev : `${placement.netdev} ${placement.queue}`}
          </SelectionLink>
        )}{" "}
        {placement.queue === null && <Unknown why={why.queue} />}
      </td>
      <td>
        {placement.irq === null ? (
          <Unknown why={why.irq} />
        ) : (
          <SelectionLink view={view} sel={`irq:${placement.irq}`}>
            {placement.irq}
          </SelectionLink>
        )}
      </td>
      <td title={methodText(placement.how)}>
        {placement.cpu === null ? <Unknown why={why.cpu} /> : cpu(placement.cpu, `CPU ${placement.cpu}`)}
      </td>
      <td>
        {cpu(task.cpu, `CPU ${task.cpu}`)}{" "}
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
        {offNode && <span className={`${styles.wrong} warn`}>off the NIC's NUMA node</span>}
      </td>
      <td className="n">{formatFigure(bitRate(placement.rx_bytes_per_s))}</td>
      <td className="n">{formatFigure(bitRate(placement.tx_bytes_per_s))}</td>
      {isCoscheduled && <CoschedulingCells of={task.coscheduled} />}
    </tr>
  );
}

/** The NUMA node if all are on one, else the nodes of NIC, softirq CPU and task. */
function Nodes({ of: { nic, softirq, task } }: { of: RxPath["nodes"] }) {
  const known = [nic, softirq, task].filter((node) => node !== null);
  if (known.length === 0) return <Unknown why="The kernel reports no NUMA nodes." />;
  if (new Set(known).size === 1) return <>{known[0]}</>;
  return (
    <span className={softirq !== null && softirq !== task ? "bad" : undefined}>
      {nic !== null && `NIC ${nic} → `}
      {softirq !== null && `softirq ${softirq} → `}
      task {task ?? "?"}{" "}
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
