import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { METRICS } from "../api/metrics";
import { Scroll } from "../components/Scroll";
import { cividis } from "../lib/cividis";
import { formatCount, formatFigure } from "../lib/format";
import { type FleetMetric, formatOf } from "../lib/metrics";
import type { Colouring } from "./colourings";
import styles from "./fleet.module.css";
import { useSummary } from "./fleetStore";

type Group = Schemas["Group"];

const SUMS = ["rx_bytes_per_s", "interrupts_per_s", "softnet_dropped_per_s"] as const satisfies FleetMetric[];

/** A figure of a group: of rates the sum, of others that of its worst node. */
function figureOf({ totals }: Group, column: FleetMetric): number | null {
  return totals.sums[column] ?? totals.worst[column]?.value ?? null;
}

const Unknown = () => (
  <td className="n hatched">
    <span className="visually-hidden">no data</span>
  </td>
);

function Figure({ column, value }: { column: FleetMetric; value: number | null }) {
  return value === null ? <Unknown /> : <td className="n">{formatFigure(formatOf(column)(value))}</td>;
}

type Props = { answer: Schemas["FleetAnswer"]; group: string; colouring: Colouring; isPast: boolean };

/** The groups of the nodes that match, with the figures of each; a group's link shows its nodes. */
export function GroupTable({ answer, group, colouring, isPast }: Props) {
  const summary = useSummary();
  const groups = isPast || summary === null ? answer.groups : summary.groups;
  const by = group.replace("label:", "");
  const { column } = colouring;
  return (
    <section className="card" aria-labelledby="groups-heading">
      <h2>
        <span id="groups-heading">Groups by {by}</span> <small>open one to see its nodes</small>
      </h2>
      <Scroll label={`Figures of the groups by ${by}`}>
        <table className={`table ${styles.dense}`}>
          <thead>
            <tr>
              <th>{by}</th>
              <th className="n">nodes</th>
              <th className="n">live</th>
              <th className="n">disconnected</th>
              {SUMS.map((name) => (
                <th key={name} className="n">
                  {METRICS[name].short}
                </th>
              ))}
              <th className="n">hot nodes</th>
              <th className="n">{METRICS.wrong_node_percent.short}</th>
              <th>worst by {METRICS[column].short}</th>
            </tr>
          </thead>
          <tbody>
            {groups.map((one) => (
              <Row key={one.name} group={one} colouring={colouring} />
            ))}
          </tbody>
        </table>
      </Scroll>
      {answer.other_groups > 0 && (
        <p className="body muted">and {formatCount(answer.other_groups, "smaller group")}; filter to see them.</p>
      )}
    </section>
  );
}

function Row({ group, colouring }: { group: Group; colouring: Colouring }) {
  const { name, totals } = group;
  const { column } = colouring;
  const value = figureOf(group, column);
  const worst = totals.worst[column];
  const [red, green, blue] = value === null ? [0, 0, 0] : cividis(Math.max(0, Math.min(1, colouring.position(value))));
  return (
    <tr>
      <td>
        <i
          aria-hidden="true"
          className={`${styles.swatch} ${value === null ? "hatched" : ""}`}
          style={value === null ? undefined : { background: `rgb(${red} ${green} ${blue})` }}
        />
        <Link to="/fleet" search={(before) => ({ ...before, within: name, page: undefined })}>
          {name}
        </Link>
      </td>
      <td className="n">{totals.nodes.toLocaleString("en")}</td>
      <td className="n">{(totals.health.live ?? 0).toLocaleString("en")}</td>
      <td className={totals.health.away ? "n bad" : "n"}>{(totals.health.away ?? 0).toLocaleString("en")}</td>
      {SUMS.map((sum) => (
        <Figure key={sum} column={sum} value={totals.sums[sum] ?? null} />
      ))}
      {totals.hot === null ? (
        <Unknown />
      ) : (
        <td className={totals.hot ? "n bad" : "n"}>{totals.hot.toLocaleString("en")}</td>
      )}
      <Figure column="wrong_node_percent" value={totals.worst.wrong_node_percent?.value ?? null} />
      {worst ? (
        <td>
          <Link to="/nodes/$nodeId" params={{ nodeId: worst.id }}>
            {worst.name}
          </Link>{" "}
          {formatFigure(formatOf(column)(worst.value))}
        </td>
      ) : (
        <Figure column={column} value={value} />
      )}
    </tr>
  );
}
