import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { Unknown } from "../components/Unknown";
import { bitRate, type Figure, formatCount, formatFigure, percent, perSecond, UNKNOWN } from "../lib/format";
import { type FleetMetric, HOT_PERCENT, isHot } from "../lib/metrics";
import { clock } from "../lib/time";
import { difference } from "./compare";
import styles from "./fleet.module.css";
import { type FleetFigures, useBefore, useFigures } from "./fleetStore";
import type { FigureColumn } from "./search";

type KpiProps = {
  label: string;
  figure: Figure;
  tone?: string | undefined;
  more?: string | undefined;
  /** The line about the comparison; absent without one. */
  compared?: ReactNode;
};

function Kpi({ label, figure, tone, more, compared }: KpiProps) {
  const isUnknown = figure.value === UNKNOWN;
  return (
    <div className="kpi">
      <small>{label}</small>
      <b className={tone}>
        {isUnknown ? <Unknown why="none of the shown nodes has data" /> : figure.value}
        {figure.unit !== "" && <u>{figure.unit}</u>}
      </b>{" "}
      {more !== undefined && !isUnknown && <em>{more}</em>}
      {compared !== undefined && <div>{compared}</div>}
    </div>
  );
}

const plain = (value: number): Figure => ({ value: value.toLocaleString("en"), unit: "" });

const UnknownBefore = () => (
  <em>
    <span className={`hatched ${styles.gap}`}>
      <span className="visually-hidden">unknown</span>
    </span>{" "}
    before
  </em>
);

/** How a sum differs from before, over the nodes of which both figures are known. */
function sumDifference(
  nodes: Schemas["NodeSummary"][],
  column: FleetMetric,
  figures: FleetFigures,
  before: FleetFigures,
): ReactNode {
  const both = nodes
    .map(({ id }) => [figures.get(id, column), before.get(id, column)] as const)
    .filter(([now, then]) => !Number.isNaN(now) && !Number.isNaN(then));
  if (both.length === 0) return <UnknownBefore />;
  const [now, then] = [0, 1].map((at) => both.reduce((sum, pair) => sum + (pair[at] as number), 0));
  const found = difference(column, now as number, then as number);
  return <em className={found?.isWorse ? "bad" : undefined}>{found?.text}</em>;
}

/** How many nodes were hot before. */
function hotBefore(nodes: Schemas["NodeSummary"][], before: FleetFigures): ReactNode {
  const softirq = nodes.map(({ id }) => before.get(id, "softirq_cpu_percent")).filter((one) => !Number.isNaN(one));
  return softirq.length === 0 ? <UnknownBefore /> : <em>{softirq.filter(isHot).length} before</em>;
}

/** The node with the largest share of received bytes whose protocol work is on the wrong NUMA node. */
function worstNode(nodes: Schemas["NodeSummary"][], of: (nodeId: number) => number) {
  const known = nodes.map(({ id, name }) => ({ name, value: of(id) })).filter(({ value }) => !Number.isNaN(value));
  return known.toSorted((a, b) => b.value - a.value)[0];
}

function worstBefore(nodes: Schemas["NodeSummary"][], before: FleetFigures): ReactNode {
  const worst = worstNode(nodes, (id) => before.get(id, "wrong_node_percent"));
  return worst === undefined ? <UnknownBefore /> : <em>{formatFigure(percent(worst.value))} before</em>;
}

type Props = {
  nodes: Schemas["NodeSummary"][];
  /** How many nodes the fleet has. */
  total: number;
  changes: Schemas["Change"][];
};

/** Summary figures of the shown nodes. Nodes without data are excluded; without any data a figure is unknown. */
export function Figures({ nodes, total, changes }: Props) {
  const figures = useFigures();
  const before = useBefore();
  const isPast = figures.moment !== null;
  const healths = { live: 0, stale: 0, away: 0, new: 0 };
  for (const node of nodes) healths[figures.health(node.id)] += 1;
  // Without a live node the figures keep their last values, gray.
  const seen = nodes.map((node) => figures.last(node.id, "busiest_cpu_percent")?.timeMs ?? 0);
  const at = healths.live === 0 && Math.max(...seen) > 0 ? `at ${clock(Math.max(...seen))}` : undefined;
  const known = (column: FigureColumn) =>
    nodes
      .map((node) =>
        at === undefined ? figures.get(node.id, column) : (figures.last(node.id, column)?.value ?? Number.NaN),
      )
      .filter((value) => !Number.isNaN(value));
  const tone = (alarm: string | undefined) => (at === undefined ? alarm : "muted");
  const sum = (column: FigureColumn) => {
    const values = known(column);
    return values.length ? values.reduce((total, value) => total + value, 0) : null;
  };
  const compare = (by: (before: FleetFigures) => ReactNode) =>
    before === null ? undefined : before === "loading" ? <em>&nbsp;</em> : by(before);
  const compared = (column: FleetMetric) => compare((then) => sumDifference(nodes, column, figures, then));
  const softirq = known("softirq_cpu_percent");
  const hot = softirq.filter(isHot).length;
  const drops = sum("softnet_dropped_per_s");
  const worst = worstNode(nodes, (id) =>
    at === undefined
      ? figures.get(id, "wrong_node_percent")
      : (figures.last(id, "wrong_node_percent")?.value ?? Number.NaN),
  );
  const ofAll = `of ${total.toLocaleString("en")}`;
  const isFiltered = nodes.length < total;
  const others = [
    isFiltered && ofAll,
    isFiltered && nodes.length > 0 && `${healths.live} live`,
    healths.stale && `${healths.stale} stale`,
    healths.away && `${healths.away} away`,
    healths.new && `${healths.new} new`,
  ].filter(Boolean);
  const changing = [...new Set(changes.map((change) => change.node_name))];
  return (
    <section className={`card kpis ${styles.kpis}`} aria-label="Figures of the shown nodes">
      <Kpi
        label="Receive"
        figure={bitRate(sum("rx_bytes_per_s"))}
        tone={tone(undefined)}
        more={at}
        compared={compared("rx_bytes_per_s")}
      />
      <Kpi
        label="Transmit"
        figure={bitRate(sum("tx_bytes_per_s"))}
        tone={tone(undefined)}
        more={at}
        compared={compared("tx_bytes_per_s")}
      />
      <Kpi
        label="Interrupts"
        figure={perSecond(sum("interrupts_per_s"))}
        tone={tone(undefined)}
        more={at}
        compared={compared("interrupts_per_s")}
      />
      <Kpi
        label={`Softirq ≥ ${HOT_PERCENT} %`}
        figure={softirq.length === 0 ? perSecond(null) : plain(hot)}
        tone={tone(hot > 0 ? "bad" : undefined)}
        more={at ?? (hot === 1 ? "node" : "nodes")}
        compared={compare((then) => hotBefore(nodes, then))}
      />
      <Kpi
        label="Dropped"
        figure={perSecond(drops)}
        tone={tone(drops ? "warn" : undefined)}
        more={at}
        compared={compared("softnet_dropped_per_s")}
      />
      <Kpi
        label="Wrong-node bytes"
        figure={percent(worst?.value)}
        tone={tone(worst !== undefined && worst.value >= 25 ? "warn" : undefined)}
        more={at ?? worst?.name}
        compared={compare((then) => worstBefore(nodes, then))}
      />
      {isPast ? (
        <Kpi
          label="Nodes with data"
          figure={plain(known("busiest_cpu_percent").length)}
          more={`of ${nodes.length.toLocaleString("en")}`}
        />
      ) : (
        <>
          <Kpi
            label="Unconfirmed changes"
            figure={plain(changes.length)}
            tone={changes.length > 0 ? "change" : undefined}
            more={changing.length > 1 ? `on ${formatCount(changing.length, "node")}` : changing[0]}
          />
          <Kpi
            label={isFiltered ? "Nodes that match" : "Nodes live"}
            figure={plain(isFiltered ? nodes.length : healths.live)}
            more={others.join(" · ") || ofAll}
          />
        </>
      )}
    </section>
  );
}
