import { useMemo } from "react";
import { NO_DATA } from "../../charts/heatBlock";
import { Scroll } from "../../components/Scroll";
import { formatFigure, percent } from "../../lib/format";
import styles from "../node.module.css";
import { type NodeView, shownHeat } from "../nodeView";
import { meanShares, percents } from "../time/load";
import { useLiveLoad } from "../time/useLoad";
import { cpuLocation } from "../topology";
import type { Chip } from "./irqChips";

const KINDS = ["busy", "user", "system", "softirq", "irq", "steal", "iowait"] as const;

/** The heatmap as a table: each CPU's current shares and its maximum in the shown range. */
export function CoresTable({
  view,
  cpus,
  chips,
  isolated,
}: {
  view: NodeView;
  cpus: readonly number[];
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
}) {
  const { frames } = useLiveLoad(view.window);
  const means = useMemo(
    () => KINDS.map((kind) => percents(meanShares(view.past === null ? frames : [], kind))),
    [frames, view.past],
  );
  const block = shownHeat(view);
  const highest = (cpu: number) => {
    const value = block === null || cpu >= block.rows ? NO_DATA : block.max(cpu);
    return formatFigure(percent(value === NO_DATA ? null : value / 2));
  };
  return (
    <Scroll label="CPUs as a table" className={styles.tableBox}>
      <table className="table">
        <thead>
          <tr>
            <th>CPU</th>
            {KINDS.map((kind) => (
              <th key={kind} className="n" title="Mean of the last 5 s">
                {kind} now
              </th>
            ))}
            <th className="n">highest {view.search.share ?? "busy"}</th>
            <th>location</th>
            <th>IRQs of</th>
          </tr>
        </thead>
        <tbody>
          {cpus.map((cpu) => (
            <tr key={cpu}>
              <td>
                <button type="button" className="link" onClick={() => view.navigate({ sel: `cpu:${cpu}` })}>
                  CPU {cpu}
                </button>
              </td>
              {KINDS.map((kind, index) => (
                <td key={kind} className="n">
                  {formatFigure(percent(means[index]?.[cpu]))}
                </td>
              ))}
              <td className="n">{highest(cpu)}</td>
              <td>
                {cpuLocation(view.topology, cpu)}
                {isolated.has(cpu) && " · isolated"}
              </td>
              <td>
                {chips
                  .get(cpu)
                  ?.map((chip) => chip.netdev + chip.queues)
                  .join(", ") ?? ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
