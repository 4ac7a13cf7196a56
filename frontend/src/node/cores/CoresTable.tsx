import { ABSENT_SHARE } from "../../api/constants";
import { NO_DATA } from "../../charts/heatBlock";
import { formatFigure, percent } from "../../lib/format";
import styles from "../node.module.css";
import { type NodeView, shownHeat, useFrames } from "../nodeView";
import { cpuLocation } from "../topology";
import type { Row } from "./coreRows";
import type { Chip } from "./irqChips";

const KINDS = ["busy", "user", "system", "softirq", "irq", "steal", "iowait"] as const;

/** The heatmap as a table: each CPU's current shares and its maximum in the shown range. */
export function CoresTable({
  view,
  rows,
  chips,
  isolated,
}: {
  view: NodeView;
  rows: Row[];
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
}) {
  useFrames(view.window);
  const frame = view.past === null ? view.window.last : undefined;
  const block = shownHeat(view);
  const now = (name: string, cpu: number) => {
    const value = frame?.share(name)?.[cpu] ?? ABSENT_SHARE;
    return formatFigure(percent(value === ABSENT_SHARE ? null : value / 2));
  };
  const highest = (cpu: number) => {
    const value = block === null || cpu >= block.rows ? NO_DATA : block.max(cpu);
    return formatFigure(percent(value === NO_DATA ? null : value / 2));
  };
  const cpus = rows.flatMap((row) => (row.kind === "cpu" ? [row.cpu] : row.folded ? row.cpus : []));
  return (
    <div className={styles.tableBox}>
      <table className="table">
        <thead>
          <tr>
            <th>CPU</th>
            {KINDS.map((kind) => (
              <th key={kind} className="n">
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
              {KINDS.map((kind) => (
                <td key={kind} className="n">
                  {now(kind, cpu)}
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
                  ?.map((chip) => chip.label)
                  .join(", ") ?? ""}
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
