import { Scroll } from "../../components/Scroll";
import { formatFigure, perSecond } from "../../lib/format";
import styles from "../node.module.css";
import type { NodeView } from "../nodeView";
import type { MatrixRow } from "./matrixRows";

/** CPUs listed per interrupt; the rest is counted. */
const CPUS = 6;

/** The matrix as a table: each interrupt with its rate per CPU and its requested and effective affinity. */
export function MatrixTable({ view, rows }: { view: NodeView; rows: MatrixRow[] }) {
  const irqs = new Map(view.inventory?.irqs.map((irq) => [irq.irq, irq]));
  return (
    <Scroll label="Interrupts as a table" className={styles.tableBox}>
      <table className="table">
        <thead>
          <tr>
            <th>IRQ</th>
            <th>name</th>
            <th>NIC</th>
            <th className="n">rate</th>
            <th>on CPU</th>
            <th>requested</th>
            <th>effective</th>
            <th>movable</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const irq = row.irq === null ? undefined : irqs.get(row.irq);
            const busiest = [...row.perS].sort((a, b) => b[1] - a[1]);
            return (
              <tr key={row.label}>
                <td>
                  {row.irq === null ? (
                    row.label
                  ) : (
                    <button type="button" className="link" onClick={() => view.navigate({ sel: `irq:${row.irq}` })}>
                      {row.label}
                    </button>
                  )}
                </td>
                <td>{row.name}</td>
                <td>{row.netdev ?? ""}</td>
                <td className="n">{formatFigure(perSecond(row.total))}</td>
                <td>
                  {busiest
                    .slice(0, CPUS)
                    .map(([cpu, rate]) => `${cpu}: ${formatFigure(perSecond(rate))}`)
                    .join(" · ")}
                  {busiest.length > CPUS && ` · ${busiest.length - CPUS} more`}
                </td>
                <td className="mono">{irq?.requested ?? ""}</td>
                <td className="mono">{irq?.effective ?? ""}</td>
                <td title={row.locked ?? undefined}>
                  {row.locked !== null ? "locked" : irq?.movable === true ? "yes" : ""}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
