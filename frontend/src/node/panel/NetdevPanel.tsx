import { formatCpuList } from "../../lib/cpulist";
import { bitRate, formatFigure, linkSpeed, packetRate, perSecond } from "../../lib/format";
import { ParamsEditor } from "../coalescing/ParamsEditor";
import { targetCpus } from "../interrupts/irqAffinity";
import { type NodeView, useFrames } from "../nodeView";
import { userOf, usersOf } from "../queueUsers";
import type { Netdev } from "../types";
import { FlowRules } from "./FlowRules";
import { PanelFrame, PropertyList, SelectionLink } from "./PanelFrame";
import styles from "./panel.module.css";

/** Panel of a network device: properties, rates, parameters, flow rules, and its queues with their IRQs and CPUs. */
export function NetdevPanel({ view, name }: { view: NodeView; name: string }) {
  const netdev = view.inventory?.netdevs.find((candidate) => candidate.name === name);
  if (netdev === undefined)
    return (
      <PanelFrame view={view} title={name}>
        <p className="muted">This node has no network device {name} now.</p>
      </PanelFrame>
    );
  const users = usersOf(name, view.inventory);
  return (
    <PanelFrame
      view={view}
      title={name}
      note={netdev.driver ?? (netdev.virtual ? "virtual" : "driver unknown")}
      chart="throughput"
    >
      <PropertyList
        of={[
          ["speed", netdev.speed_bits_per_s === null ? "unknown" : formatFigure(linkSpeed(netdev.speed_bits_per_s))],
          ["MTU", netdev.mtu === null ? "unknown" : String(netdev.mtu)],
          ["NUMA node", netdev.numa_node === null ? "unknown" : String(netdev.numa_node)],
          ["link", netdev.up === null ? "unknown" : netdev.up ? "up" : "down"],
          netdev.management ? ["management", "carries the agent's connection to the backend"] : null,
          users.length > 0 ? ["used by", `${users.map(userOf).join("; ")}: never moved`] : null,
        ]}
      />
      <Rates view={view} name={name} />
      <h3>Coalescing and steering</h3>
      <ParamsEditor view={view} netdev={netdev} />
      <h3>Flow rules</h3>
      <FlowRules view={view} netdev={netdev} />
      {netdev.rss_contexts !== null && netdev.rss_contexts.length > 0 && (
        <>
          <h3>RSS contexts</h3>
          <PropertyList
            of={netdev.rss_contexts.map(({ number, rss, ours }) => [
              `context ${number}`,
              `queues ${rss}, ${ours ? "created by Coresteer" : "created by another program, never changed"}`,
            ])}
          />
        </>
      )}
      <h3>Queues</h3>
      <Queues view={view} netdev={netdev} />
    </PanelFrame>
  );
}

const FIELDS = [
  ["received", bitRate],
  ["sent", bitRate],
  ["received packets", packetRate],
  ["sent packets", packetRate],
  ["receive drops", perSecond],
  ["send drops", perSecond],
  ["receive errors", perSecond],
  ["send errors", perSecond],
] as const;

/** What a network device received and sent in the last sample, also while a past range is shown. */
export function Rates({ view, name }: { view: Pick<NodeView, "window" | "past">; name: string }) {
  useFrames(view.window);
  const frame = view.window.last;
  const counts = frame?.netdevs?.find(([other]) => other === name);
  return (
    <>
      {view.past !== null && <p className="muted">Paused: values of the last received samples.</p>}
      <PropertyList
        of={FIELDS.map(([label, format], index) => {
          const value = counts?.[index + 1];
          return [
            label,
            formatFigure(format(typeof value === "number" && frame ? value / frame.duration_s : null)),
          ] as const;
        })}
      />
    </>
  );
}

function Queues({ view, netdev }: { view: NodeView; netdev: Netdev }) {
  if (netdev.queues.length === 0) return <p className="muted">The kernel reports no queues.</p>;
  return (
    <div className={styles.scrollX}>
      <table className="table">
        <thead>
          <tr>
            <th>queue</th>
            <th>IRQ</th>
            <th>CPUs</th>
            <th>RPS · XPS</th>
            <th>RFS</th>
            <th>source</th>
          </tr>
        </thead>
        <tbody>
          {netdev.queues.map((queue) => {
            const irq = view.inventory?.irqs.find((candidate) => candidate.irq === queue.irq);
            return (
              <tr key={queue.name}>
                <td>{queue.name}</td>
                <td>
                  {queue.irq === null ? (
                    <span className="muted">unknown</span>
                  ) : (
                    <SelectionLink view={view} sel={`irq:${queue.irq}`}>
                      {queue.irq}
                    </SelectionLink>
                  )}
                </td>
                <td className="mono">{irq === undefined ? "" : formatCpuList(targetCpus(irq))}</td>
                <td className="mono">{(queue.name.startsWith("tx") ? queue.xps : queue.rps) || "off"}</td>
                <td className="mono">{queue.params.rps_flow_cnt ?? ""}</td>
                <td>{queue.source ?? ""}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </div>
  );
}
