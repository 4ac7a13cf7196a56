import type { Schemas } from "../api/client";
import { bitRate, type Figure, perSecond } from "../lib/format";
import { HOT_PERCENT, isHot } from "../lib/metrics";
import { useFigures } from "./fleetStore";
import type { FigureColumn } from "./search";

function Kpi({ label, figure, tone, more }: { label: string; figure: Figure; tone?: string; more?: string }) {
  return (
    <div className="kpi">
      <small>{label}</small>
      <b className={tone}>
        {figure.value}
        {figure.unit !== "" && <u>{figure.unit}</u>}
      </b>{" "}
      {more !== undefined && <em>{more}</em>}
    </div>
  );
}

const plain = (value: number): Figure => ({ value: value.toLocaleString("en"), unit: "" });

/** Summary figures of the shown nodes. Nodes without data are excluded; without any data a figure is unknown. */
export function Figures({ nodes, changes }: { nodes: Schemas["NodeSummary"][]; changes: Schemas["Change"][] }) {
  const figures = useFigures();
  const known = (column: FigureColumn) =>
    nodes.map((node) => figures.get(node.id, column)).filter((value) => !Number.isNaN(value));
  const sum = (column: FigureColumn) => {
    const values = known(column);
    return values.length ? values.reduce((total, value) => total + value, 0) : null;
  };
  const healths = { live: 0, stale: 0, away: 0, new: 0 };
  for (const node of nodes) healths[figures.health(node.id)] += 1;
  const hot = known("softirq_cpu_percent").filter(isHot).length;
  const drops = sum("softnet_dropped_per_s");
  const others = [
    healths.stale && `${healths.stale} stale`,
    healths.away && `${healths.away} away`,
    healths.new && `${healths.new} new`,
  ].filter(Boolean);
  const changing = [...new Set(changes.map((change) => change.node_name))];
  return (
    <section className="card kpis" aria-label="Figures of the shown nodes">
      <Kpi label="Receive" figure={bitRate(sum("rx_bytes_per_s"))} />
      <Kpi label="Transmit" figure={bitRate(sum("tx_bytes_per_s"))} />
      <Kpi label="Interrupts" figure={perSecond(sum("interrupts_per_s"))} />
      <Kpi
        label={`Softirq ≥ ${HOT_PERCENT} %`}
        figure={plain(hot)}
        tone={hot > 0 ? "bad" : undefined}
        more={hot === 1 ? "node" : "nodes"}
      />
      <Kpi label="Dropped" figure={perSecond(drops)} tone={drops ? "warn" : undefined} />
      <Kpi
        label="Unconfirmed changes"
        figure={plain(changes.length)}
        tone={changes.length > 0 ? "change" : undefined}
        more={changing.slice(0, 2).join(", ") + (changing.length > 2 ? " …" : "")}
      />
      <Kpi label="Nodes live" figure={plain(healths.live)} more={others.join(" · ") || `of ${nodes.length}`} />
    </section>
  );
}
