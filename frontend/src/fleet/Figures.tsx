import type { ReactNode } from "react";
import type { Schemas } from "../api/client";
import { SOFTIRQ_BOUND_PERCENT } from "../api/constants";
import { Unknown } from "../components/Unknown";
import { bitRate, type Figure, formatCount, formatFigure, percent, perSecond, UNKNOWN } from "../lib/format";
import type { FleetMetric } from "../lib/metrics";
import { clock } from "../lib/time";
import { difference } from "./compare";
import styles from "./fleet.module.css";
import { useSummary } from "./fleetStore";

type Compared = Schemas["Compared"];

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
function sumDifference(column: FleetMetric, { now_sums, sums }: Compared): ReactNode {
  const found = difference(column, now_sums[column] ?? Number.NaN, sums[column] ?? Number.NaN);
  return found === null ? <UnknownBefore /> : <em className={found.isWorse ? "bad" : undefined}>{found.text}</em>;
}

const hotBefore = ({ hot }: Compared): ReactNode => (hot === null ? <UnknownBefore /> : <em>{hot} before</em>);

function worstBefore({ worst }: Compared): ReactNode {
  const before = worst.wrong_node_percent?.value;
  return before === undefined ? <UnknownBefore /> : <em>{formatFigure(percent(before))} before</em>;
}

type Props = {
  answer: Schemas["FleetAnswer"];
  /** Whether the figures are of a past moment, which the answer has; present ones follow each second. */
  isPast: boolean;
  /** Another answer is loading. */
  isLoading: boolean;
  changes: Schemas["Change"][];
};

/** Summary figures of the shown nodes. Nodes without data are excluded; without any data a figure is unknown. */
export function Figures({ answer, isPast, isLoading, changes }: Props) {
  const summary = useSummary();
  const present = isPast ? answer.totals : (summary?.totals ?? answer.totals);
  // Without a live node the figures keep their last values, gray.
  const last = isPast || present.health.live ? null : (summary?.lastLive ?? null);
  const totals = last?.totals ?? present;
  const at = last === null ? undefined : `at ${clock(last.timeMs)}`;
  const healths = { live: 0, stale: 0, away: 0, new: 0, ...present.health };
  const tone = (alarm: string | undefined) => (at === undefined ? alarm : "muted");
  const sum = (column: FleetMetric) => totals.sums[column] ?? null;
  const compare = (by: (before: Compared) => ReactNode) =>
    answer.compared === null ? undefined : isLoading ? <em>&nbsp;</em> : by(answer.compared);
  const compared = (column: FleetMetric) => compare((then) => sumDifference(column, then));
  const { hot } = totals;
  const drops = sum("softnet_dropped_per_s");
  const worst = totals.worst.wrong_node_percent ?? undefined;
  const [shown, total] = [present.nodes, answer.nodes];
  const ofAll = `of ${total.toLocaleString("en")}`;
  const isFiltered = shown < total;
  const others = [
    isFiltered && ofAll,
    isFiltered && shown > 0 && `${healths.live} live`,
    healths.stale && `${healths.stale} stale`,
    healths.away && `${healths.away.toLocaleString("en")} away`,
    healths.new && `${healths.new} new`,
  ].filter(Boolean);
  // They are people's, of all nodes: without the nodes of other changes, and of others than the shown nodes.
  const isListed = !isFiltered && changes.length >= present.open_changes;
  const changing = !isListed ? [] : [...new Set(changes.map((change) => change.node_name))];
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
        label={`Softirq ≥ ${SOFTIRQ_BOUND_PERCENT} %`}
        figure={hot === null ? perSecond(null) : plain(hot)}
        tone={tone(hot ? "bad" : undefined)}
        more={at ?? (hot === 1 ? "node" : "nodes")}
        compared={compare(hotBefore)}
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
        compared={compare(worstBefore)}
      />
      {isPast ? (
        <Kpi label="Nodes with data" figure={plain(totals.with_data)} more={`of ${shown.toLocaleString("en")}`} />
      ) : (
        <>
          <Kpi
            label="Unconfirmed changes"
            figure={plain(present.open_changes)}
            tone={present.open_changes > 0 ? "change" : undefined}
            more={changing.length > 1 ? `on ${formatCount(changing.length, "node")}` : changing[0]}
          />
          <Kpi
            label={isFiltered ? "Nodes that match" : "Nodes live"}
            figure={plain(isFiltered ? shown : healths.live)}
            more={others.join(" · ") || ofAll}
          />
        </>
      )}
    </section>
  );
}
