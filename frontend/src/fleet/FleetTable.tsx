import { Button } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import type { Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { HealthDot, SimulatedTag } from "../components/NodeTags";
import { Scroll } from "../components/Scroll";
import { formatFigure } from "../lib/format";
import { type FleetMetric, formatOf } from "../lib/metrics";
import styles from "./fleet.module.css";
import { type FleetFigures, useFigures, useStableFigures } from "./fleetStore";
import type { FigureColumn, SortBy } from "./search";

type NodeSummary = Schemas["NodeSummary"];

const PAGE = 50;

const FIGURES: { sort: SortBy; column: FleetMetric; cpu?: FigureColumn }[] = [
  { sort: "busiest", column: "busiest_cpu_percent", cpu: "busiest_cpu" },
  { sort: "softirq", column: "softirq_cpu_percent", cpu: "softirq_cpu" },
  { sort: "rx", column: "rx_bytes_per_s" },
  { sort: "tx", column: "tx_bytes_per_s" },
  { sort: "interrupts", column: "interrupts_per_s" },
  { sort: "dropped", column: "softnet_dropped_per_s" },
  { sort: "squeezed", column: "squeezed_per_s" },
  { sort: "rtt", column: "rtt_p99_us" },
];

const HEALTH_ORDER = ["live", "new", "stale", "away"];
const byName = new Intl.Collator("en", { numeric: true });

/** Nodes sorted by a column (`softirq`, or `-softirq` for descending); unknown figures are last in both cases. */
export function sortNodes(nodes: NodeSummary[], sort: string, figures: FleetFigures): NodeSummary[] {
  const down = sort.startsWith("-") ? -1 : 1;
  const name = sort.replace(/^-/, "");
  const column = FIGURES.find((figure) => figure.sort === name)?.column;
  return nodes.toSorted((a, b) => {
    const equal = byName.compare(a.name, b.name);
    if (name === "health") {
      const [x, y] = [a, b].map((node) => HEALTH_ORDER.indexOf(figures.health(node.id))) as [number, number];
      return (x - y) * down || equal;
    }
    if (column === undefined) return equal * down;
    const [x, y] = [figures.get(a.id, column), figures.get(b.id, column)];
    if (Number.isNaN(x) || Number.isNaN(y)) return Number(Number.isNaN(x)) - Number(Number.isNaN(y)) || equal;
    return (x - y) * down || equal;
  });
}

function Row({ node, figures }: { node: NodeSummary; figures: FleetFigures }) {
  return (
    <tr>
      <td>
        <HealthDot health={figures.health(node.id)} />
        <Link to="/nodes/$nodeId" params={{ nodeId: node.id }}>
          {node.name}
        </Link>{" "}
        {node.simulated && <SimulatedTag />}
        {node.open_changes > 0 && <span className="tag change">{node.open_changes} unconfirmed</span>}
      </td>
      <td>{figures.health(node.id)}</td>
      <td className="n">{node.cpus ?? "–"}</td>
      {FIGURES.map(({ column, cpu }) => {
        const value = figures.get(node.id, column);
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
            {!Number.isNaN(on) && <span className="muted">CPU {on} · </span>}
            {formatFigure(formatOf(column)(value))}
          </td>
        );
      })}
      <td className="muted">{node.kernel ?? "–"}</td>
      <td className="muted">{node.drivers.join(", ") || "–"}</td>
      <td>
        <span className={styles.labels}>
          {Object.entries(node.labels).map(([key, value]) => (
            <span key={key} className="tag">
              {key}={value}
            </span>
          ))}
        </span>
      </td>
    </tr>
  );
}

/** The map's nodes and figures as a table, sorted by a click on a heading. */
export function FleetTable({
  nodes,
  sort,
  onSort,
}: {
  nodes: NodeSummary[];
  sort: string;
  onSort: (sort: string) => void;
}) {
  const stable = useStableFigures();
  const figures = useFigures();
  const [wanted, setPage] = useState(0);
  const sorted = useMemo(() => sortNodes(nodes, sort, stable), [nodes, sort, stable]);
  const pages = Math.max(1, Math.ceil(sorted.length / PAGE));
  const page = Math.min(wanted, pages - 1);
  const rows = sorted.slice(page * PAGE, (page + 1) * PAGE);
  const heading = (name: SortBy, label: string, className?: string) => {
    const down = sort === `-${name}`;
    const on = down || sort === name;
    // Names sort ascending first, figures descending.
    const next = name === "name" || name === "health" ? (sort === name ? `-${name}` : name) : down ? name : `-${name}`;
    return (
      <th key={name} className={className} aria-sort={on ? (down ? "descending" : "ascending") : "none"}>
        <button type="button" className={styles.sortable} onClick={() => onSort(next)}>
          {label}
          {on ? (down ? " ↓" : " ↑") : ""}
        </button>
      </th>
    );
  };
  return (
    <section className="card">
      <Scroll label="Nodes">
        <table className="table">
          <thead>
            <tr>
              {heading("name", "node")}
              {heading("health", "health")}
              <th className="n">CPUs</th>
              {FIGURES.map((figure) => heading(figure.sort, METRICS[figure.column].short, "n"))}
              <th>kernel</th>
              <th>drivers</th>
              <th>labels</th>
            </tr>
          </thead>
          <tbody>
            {rows.map((node) => (
              <Row key={node.id} node={node} figures={figures} />
            ))}
          </tbody>
        </table>
      </Scroll>
      {pages > 1 && (
        <div className={styles.pager}>
          <Button disabled={page === 0} onClick={() => setPage(page - 1)}>
            Previous
          </Button>
          <span>
            {page * PAGE + 1}–{Math.min(sorted.length, (page + 1) * PAGE)} of {sorted.length.toLocaleString("en")}
          </span>
          <Button disabled={page === pages - 1} onClick={() => setPage(page + 1)}>
            Next
          </Button>
        </div>
      )}
    </section>
  );
}
