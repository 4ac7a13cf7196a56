import { parseCpuList } from "../../lib/cpulist";
import { formatFigure, perSecond } from "../../lib/format";
import { dateTime } from "../../lib/time";
import { ChangeSteps } from "../changes/ChangeSteps";
import { ownerOf, queuesOf } from "../interrupts/irqAffinity";
import { averageRates } from "../interrupts/matrixRows";
import nodeStyles from "../node.module.css";
import { type NodeView, useFrames } from "../nodeView";
import type { Irq } from "../types";
import { AffinityEditor } from "./AffinityEditor";
import { PanelFrame, PropertyList, SelectionLink } from "./PanelFrame";
import styles from "./panel.module.css";

/** Panel of an interrupt: properties, owner and affinity editor. */
export function IrqPanel({ view, number }: { view: NodeView; number: number }) {
  const irq = view.inventory?.irqs.find((candidate) => candidate.irq === number);
  if (irq === undefined || view.inventory === null)
    return (
      <PanelFrame view={view} title={`IRQ ${number}`}>
        <p className="muted">This node has no interrupt {number} now.</p>
      </PanelFrame>
    );
  const { inventory, topology } = view;
  const netdev = inventory.netdevs.find((candidate) => candidate.name === irq.netdev);
  const home = netdev?.numa_node ?? irq.numa_node;
  const homeCpus = topology.numa_nodes.find((node) => node.id === home)?.cpus;
  const online = topology.cpus.filter((cpu) => cpu.online).map((cpu) => cpu.cpu);
  const owner = ownerOf(irq, inventory, online, view.changes);
  const queues = queuesOf(irq, inventory);
  const steering = queues.filter((queue) => queue.rps !== null || queue.xps !== null);
  const key = `irq/${number}/affinity`;
  const latest = view.changes.find((change) => change.plan.actions.some((action) => action.key === key));
  return (
    <PanelFrame view={view} title={`IRQ ${number}`} note={irq.name} chart="interrupts">
      <PropertyList
        of={[
          ["name", [irq.name, netdev?.driver, irq.chip].filter(Boolean).join(" · ")],
          ["rate", <Rate key="rate" view={view} irq={irq} />],
          ["requested", <code key="requested">{irq.requested ?? "not readable"}</code>],
          [
            "effective",
            <span key="effective" title="The kernel updates this value at the next interrupt">
              <code>{irq.effective || "not reported"}</code>{" "}
              {irq.effective && <span className="muted">(may lag until the next interrupt)</span>}
            </span>,
          ],
          netdev
            ? [
                "NIC",
                <SelectionLink key="nic" view={view} sel={`nic:${netdev.name}`}>
                  {netdev.name}
                </SelectionLink>,
              ]
            : null,
          home === null || home === undefined
            ? null
            : [
                netdev ? "NIC's NUMA node" : "NUMA node",
                `${home}${homeCpus === undefined ? "" : ` (CPUs ${homeCpus})`}`,
              ],
          queues.length > 0
            ? [
                "queues",
                queues.map((queue) => `${queue.name}${queue.source ? ` (from ${queue.source})` : ""}`).join(", "),
              ]
            : null,
          steering.length > 0
            ? [
                "RPS · XPS",
                steering
                  .map((queue) => `${queue.name} ${(queue.name.startsWith("tx") ? queue.xps : queue.rps) || "off"}`)
                  .join(", "),
              ]
            : null,
          [
            "owner",
            <span key="owner">
              {owner.who} <span className="muted">{ownerDetail(owner.detail)}</span>
            </span>,
          ],
          [
            "movable",
            irq.movable === true ? (
              <span key="movable" className="ok">
                yes
              </span>
            ) : irq.movable === false ? (
              <span key="movable">no, locked</span>
            ) : (
              "unknown"
            ),
          ],
        ]}
      />
      {irq.movable === false ? (
        <p className={nodeStyles.warnbox}>
          <b>This interrupt cannot be moved.</b> {irq.locked_reason ?? "The kernel manages its affinity."}
        </p>
      ) : (
        <AffinityEditor view={view} irq={irq} home={homeCpus ?? null} latest={latest} />
      )}
      {latest !== undefined && <ChangeSteps change={latest} />}
    </PanelFrame>
  );
}

/** An owner's detail with its trailing RFC 3339 time in local time. */
function ownerDetail(detail: string): string {
  return detail.replace(/\d{4}-\d\d-\d\dT\S+$/, (moment) => dateTime(Date.parse(moment)));
}

/** An interrupt's current rate and the CPUs that handle it. */
function Rate({ view, irq }: { view: NodeView; irq: Irq }) {
  useFrames(view.window);
  if (view.past !== null) return <span className="muted">live view only</span>;
  const known = averageRates(view.window.recent);
  if (known === null) return <span className="muted">no samples</span>;
  const rates = [...(known.get(String(irq.irq)) ?? [])].sort((a, b) => b[1] - a[1]);
  const total = rates.reduce((sum, [, rate]) => sum + rate, 0);
  const requested = parseCpuList(irq.requested ?? "");
  return (
    <>
      <b className={styles.rate}>{formatFigure(perSecond(total))}</b>{" "}
      {rates.slice(0, 4).map(([cpu, rate]) => (
        <span key={cpu} className={requested.includes(cpu) || requested.length === 0 ? "muted" : "warn"}>
          CPU {cpu}
          {rates.length > 1 && ` ${Math.round((100 * rate) / total)} %`}{" "}
        </span>
      ))}
      {rates.length > 4 && <span className="muted">and {rates.length - 4} more</span>}
    </>
  );
}
