import { type ReactNode, useMemo } from "react";
import { ABSENT_U32 } from "../../api/constants";
import { bytes, formatFigure, percent, perSecond } from "../../lib/format";
import { targetCpus } from "../interrupts/irqAffinity";
import { averageRates } from "../interrupts/matrixRows";
import nodeStyles from "../node.module.css";
import { type NodeView, useFrames } from "../nodeView";
import { meanShares, percents } from "../time/load";
import { useLiveLoad } from "../time/useLoad";
import { cachesOf, cpuLocation, isolatedCpus } from "../topology";
import { PanelFrame, PropertyList, SelectionLink } from "./PanelFrame";
import styles from "./panel.module.css";

const KINDS = [
  ["busy", "everything but idle and waiting for I/O"],
  ["user", "user processes, nice and guests included"],
  ["system", "kernel code on behalf of processes"],
  ["softirq", "softirqs: the network stack, timers"],
  ["irq", "interrupt handlers; without CONFIG_IRQ_TIME_ACCOUNTING counted by ticks, so it may read 0"],
  ["steal", "taken by the hypervisor for other guests"],
  ["iowait", "idle with I/O outstanding"],
] as const;

type Kind = (typeof KINDS)[number][0];

const COUNTS = [
  ["net_rx", "softirq NET_RX"],
  ["net_tx", "softirq NET_TX"],
  ["softirq_other", "other softirqs"],
  ["processed", "softnet processed"],
  ["dropped", "softnet dropped"],
  ["time_squeeze", "softnet squeezed"],
] as const;

const SHOWN_IRQS = 12;

/** Panel of a CPU: location, current load, interrupts and tasks. */
export function CpuPanel({ view, cpu }: { view: NodeView; cpu: number }) {
  const { topology } = view;
  const found = topology.cpus.find((candidate) => candidate.cpu === cpu);
  const isolated = useMemo(() => isolatedCpus(topology), [topology]);
  const load = useLiveLoad(view.window);
  if (found === undefined)
    return (
      <PanelFrame view={view} title={`CPU ${cpu}`}>
        <p className="muted">This node has no CPU {cpu}.</p>
      </PanelFrame>
    );
  // What follows would move when the first samples arrive.
  const isWaiting = load.frames.length === 0 && view.past === null && view.staleSince === null;
  return (
    <PanelFrame view={view} title={`CPU ${cpu}`} note={found.online ? undefined : "offline"} chart="softirq">
      <PropertyList
        of={[
          ["location", cpuLocation(topology, cpu)],
          !found.online
            ? null
            : [
                "caches",
                cachesOf(topology, cpu)
                  .filter((cache) => cache.type !== "Instruction")
                  .map(
                    (cache) =>
                      `L${cache.level} ${cache.size_bytes === null ? "" : formatFigure(bytes(cache.size_bytes))} (${cache.cpus})`,
                  )
                  .join(", ") || "unknown",
              ],
          isolated.has(cpu) ? ["isolated", "by isolcpus or nohz_full"] : null,
          found.capacity === null ? null : ["capacity", String(found.capacity)],
        ]}
      />
      {!found.online ? (
        <p className="muted">Offline: no task runs and no interrupt is handled here.</p>
      ) : isWaiting ? (
        <p className="muted" data-waiting>
          Waiting for the first samples.
        </p>
      ) : (
        <Now view={view} cpu={cpu} />
      )}
    </PanelFrame>
  );
}

/** The last part, the interrupts, grows and shrinks while the panel is open. */
function Now({ view, cpu }: { view: NodeView; cpu: number }) {
  useFrames(view.window);
  const frame = view.window.last;
  const { frames } = useLiveLoad(view.window);
  const means = useMemo(() => new Map(KINDS.map(([name]) => [name, percents(meanShares(frames, name))])), [frames]);
  const rates = useMemo(() => averageRates(frames), [frames]);
  const here = (view.inventory?.irqs ?? [])
    .map((irq) => ({ irq, rate: rates?.get(String(irq.irq))?.get(cpu) ?? 0 }))
    .filter(
      ({ irq, rate }) =>
        rate > 0 || (irq.netdev !== null && targetCpus(irq).length === 1 && targetCpus(irq)[0] === cpu),
    )
    .sort((a, b) => b.rate - a.rate);
  const share = (name: Kind): ReactNode => {
    const value = means.get(name)?.[cpu] ?? null;
    return value === null ? <span className="muted">–</span> : <Bar percent={value} name={name} />;
  };
  const counted = (name: string): string => {
    const value = frame?.count(name)?.[cpu] ?? ABSENT_U32;
    return formatFigure(perSecond(frame === undefined || value === ABSENT_U32 ? null : value / frame.duration_s));
  };
  return (
    <>
      {view.past !== null && <p className="muted">Paused: values of the last received samples.</p>}
      <dl className={nodeStyles.kv}>
        {KINDS.map(([name, meaning]) => (
          <div key={name}>
            <dt title={meaning}>{name}</dt>
            <dd>{share(name)}</dd>
          </div>
        ))}
      </dl>
      <h3>Softirq and softnet</h3>
      <PropertyList of={COUNTS.map(([name, label]) => [label, counted(name)] as const)} />
      <h3>Tasks that last ran here</h3>
      <Tasks view={view} cpu={cpu} />
      <h3>Interrupts handled here</h3>
      {here.length === 0 ? (
        <p className="muted">None in the last 5 s.</p>
      ) : (
        <table className="table">
          <tbody>
            {here.slice(0, SHOWN_IRQS).map(({ irq, rate }) => (
              <tr key={irq.irq}>
                <td>
                  <SelectionLink view={view} sel={`irq:${irq.irq}`}>
                    {irq.irq}
                  </SelectionLink>
                </td>
                <td className={styles.ellipsis}>{irq.name}</td>
                <td>{irq.queues.join(" ")}</td>
                <td className="n">{formatFigure(perSecond(rates === null ? null : rate))}</td>
              </tr>
            ))}
          </tbody>
        </table>
      )}
      {here.length > SHOWN_IRQS && <p className="muted">and {here.length - SHOWN_IRQS} more in the matrix</p>}
    </>
  );
}

function Tasks({ view, cpu }: { view: NodeView; cpu: number }) {
  const tasks = view.node.tasks.filter((task) => task.cpu === cpu).sort((a, b) => b.cpu_share - a.cpu_share);
  if (tasks.length === 0) return <p className="muted">None of the busiest tasks.</p>;
  return (
    <ul className={styles.plain}>
      {tasks.map((task) => (
        <li key={task.pid}>
          {task.name} <span className="muted">{task.pid}</span> {formatFigure(percent(100 * task.cpu_share))}
        </li>
      ))}
    </ul>
  );
}

const COLOURS: Record<string, string> = { softirq: "var(--softirq)", irq: "var(--irq)" };

function Bar({ percent: value, name }: { percent: number; name: string }) {
  return (
    <span className={styles.bar}>
      <span>
        <i style={{ width: `${value}%`, background: COLOURS[name] ?? "var(--user)" }} />
      </span>
      <b>{formatFigure(percent(value))}</b>
    </span>
  );
}
