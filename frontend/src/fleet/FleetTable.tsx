import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { HealthDot, SimulatedTag } from "../components/NodeTags";
import { Pager } from "../components/Pager";
import { Scroll } from "../components/Scroll";
import { SortHeading } from "../components/SortHeading";
import { formatCount, formatFigure } from "../lib/format";
import { type FleetMetric, formatOf } from "../lib/metrics";
import { clock, zonedTime } from "../lib/time";
import type { Column } from "./columns";
import { Difference } from "./Difference";
import styles from "./fleet.module.css";
import { type FleetFigures, useBefore, useFigures } from "./fleetStore";
import type { FigureColumn, SortBy } from "./search";
import { TABLE_PAGE } from "./useFleet";

type NodeSummary = Schemas["NodeSummary"];

export const FIGURES: { sort: SortBy; column: FleetMetric; cpu?: FigureColumn }[] = [
  { sort: "busiest", column: "busiest_cpu_percent", cpu: "busiest_cpu" },
  { sort: "softirq", column: "softirq_cpu_percent", cpu: "softirq_cpu" },
  { sort: "rx", column: "rx_bytes_per_s" },
  { sort: "tx", column: "tx_bytes_per_s" },
  { sort: "interrupts", column: "interrupts_per_s" },
  { sort: "dropped", column: "softnet_dropped_per_s" },
  { sort: "squeezed", column: "squeezed_per_s" },
  { sort: "rtt", column: "rtt_p99_us" },
  { sort: "wrong-node", column: "wrong_node_percent" },
];

const figuresOf = (columns: readonly Column[]) => FIGURES.filter(({ sort }) => columns.some((one) => one === sort));

type RowProps = { node: NodeSummary; figures: FleetFigures; columns: readonly Column[] };

function Row({ node, figures, columns }: RowProps) {
  const shows = (column: Column) => columns.includes(column);
  const seen = figures.last(node.id, "busiest_cpu_percent");
  const isPresent = figures.moment === null;
  const health = isPresent ? figures.health(node.id) : node.health;
  return (
    <tr>
      <td>
        <HealthDot health={health} />
        <Link to="/nodes/$nodeId" params={{ nodeId: node.id }}>
          {node.name}
        </Link>{" "}
        {node.simulated && <SimulatedTag />}{" "}
        {isPresent && node.open_changes > 0 && (
          <span className="tag change" title={`${formatCount(node.open_changes, "unconfirmed change")}`}>
            {formatCount(node.open_changes, "change")}
          </span>
        )}
      </td>
      {shows("health") && (
        <td>
          {health}
          {seen !== null && (
            <span className="muted" title={zonedTime(seen.timeMs)}>
              {" "}
              since {clock(seen.timeMs)}
            </span>
          )}
        </td>
      )}
      {shows("cpus") && <td className="n">{node.cpus ?? "–"}</td>}
      {figuresOf(columns).map(({ column, cpu }) => {
        const value = figures.get(node.id, column);
        const last = figures.last(node.id, column);
        if (last !== null) {
          return (
            <td key={column} className={`n muted ${styles.figure}`} title={`Last value, of ${zonedTime(last.timeMs)}`}>
              {formatFigure(formatOf(column)(last.value))}
            </td>
          );
        }
        if (Number.isNaN(value)) {
          return (
            <td key={column} className="n hatched">
              <span className="visually-hidden">no data</span>
            </td>
          );
        }
        const on = cpu === undefined ? Number.NaN : figures.get(node.id, cpu);
        return (
          <td key={column} className={`n ${styles.figure}`}>
            <span>
              {!Number.isNaN(on) && <span className="muted">CPU {on} · </span>}
              {formatFigure(formatOf(column)(value))}
            </span>
            <Difference nodeId={node.id} column={column} />
          </td>
        );
      })}
      {shows("kernel") && (
        <td className={`muted ${styles.kernel}`} title={node.kernel ?? undefined}>
          {node.kernel ?? "–"}
        </td>
      )}
      {shows("drivers") && <td className="muted">{node.drivers.join(", ") || "–"}</td>}
      {shows("labels") && (
        <td className="wrap">
          {Object.keys(node.labels).length > 0 && (
            <span className={styles.labels}>
              {Object.entries(node.labels).map(([key, value]) => (
                <span key={key} className="tag">
                  {key}={value}
                </span>
              ))}
            </span>
          )}
        </td>
      )}
    </tr>
  );
}

/** The map's nodes and figures as a table, sorted by a click on a heading. */
export function FleetTable({
  nodes,
  total,
  page,
  columns,
  sort,
  onSort,
  onPage,
}: {
  nodes: NodeSummary[];
  total: number;
  /** From 0. */
  page: number;
  columns: readonly Column[];
  sort: string;
  onSort: (sort: SortBy | `-${SortBy}` | undefined) => void;
  onPage: (page: number) => void;
}) {
  const figures = useFigures();
  const isCompared = useBefore() !== null;
  const heading = (column: SortBy, label: string, className?: string) => (
    <SortHeading key={column} {...{ column, label, className, sort, onSort }} />
  );
  return (
    <section className="card">
      <Scroll label="Nodes">
        <table className={`table ${styles.dense}`}>
          <thead>
            <tr>
              {heading("name", "node")}
              {columns.includes("health") && heading("health", figures.moment === null ? "health" : "health now")}
              {columns.includes("cpus") && <th className="n">CPUs</th>}
              {figuresOf(columns).map((figure) => heading(figure.sort, METRICS[figure.column].short, "n"))}
              {(["kernel", "drivers", "labels"] as const).map(
                (column) => columns.includes(column) && <th key={column}>{column}</th>,
              )}
            </tr>
          </thead>
          <tbody className={isCompared ? styles.compared : undefined}>
            {nodes.map((node) => (
              <Row key={node.id} node={node} figures={figures} columns={columns} />
            ))}
          </tbody>
        </table>
      </Scroll>
      <Pager page={page} size={TABLE_PAGE} total={total} onPage={onPage} />
    </section>
  );
}
