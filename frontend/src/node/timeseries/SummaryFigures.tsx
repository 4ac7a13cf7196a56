import { useQuery } from "@tanstack/react-query";
import { FIRST_LABEL_ID } from "../../api/constants";
import { type HeatBlock, NO_DATA } from "../../charts/heatBlock";
import type { Point } from "../../charts/seriesRing";
import { bitRate, type Figure, formatFigure, micros, packetRate, percent, perSecond, ratio } from "../../lib/format";
import { isHot } from "../../lib/metrics";
import type { RatesFrame } from "../../live/frames";
import { type NodeView, useFrames } from "../nodeView";
import { heatQuery } from "../queries";
import { largestShare, meanOf, packetsPerInterrupt } from "./metricValues";
import styles from "./timeseries.module.css";

type Peak = { cpu: number; percent: number } | null;

/** The CPU with the highest value in a past range; null without data. */
function peakOf(block: HeatBlock | undefined): Peak {
  let peak: Peak = null;
  for (let cpu = 0; cpu < (block?.rows ?? 0); cpu++) {
    const value = block?.max(cpu) ?? NO_DATA;
    if (value !== NO_DATA && (peak === null || value / 2 > peak.percent)) peak = { cpu, percent: value / 2 };
  }
  return peak;
}

/** The IRQ × CPU cell with the highest rate of a frame, `IRQ 41 on CPU 2`; without architecture rows. */
function busiestCell(frame: RatesFrame | undefined): string {
  const irqs = frame?.irqs;
  if (!irqs) return "";
  let best = -1;
  for (let index = 0; index < irqs.ids.length; index++) {
    if ((irqs.ids[index] ?? 0) >= FIRST_LABEL_ID) continue;
    if (best === -1 || (irqs.counts[index] ?? 0) > (irqs.counts[best] ?? 0)) best = index;
  }
  return best === -1 ? "" : `IRQ ${irqs.ids[best]} on CPU ${irqs.cpus[best]}`;
}

/** Seven summary figures of the last interval, or over the past range. */
export function SummaryFigures({ view, pastPoints }: { view: NodeView; pastPoints: Point[] }) {
  useFrames(view.window);
  const busyPast = useQuery(heatQuery(view.node.id, "busy", view.past));
  const softirqPast = useQuery(heatQuery(view.node.id, "softirq", view.past));
  const live = view.past === null;
  const frame = live ? view.window.last : undefined;
  const values = frame === undefined ? meanOf(live ? [] : pastPoints) : frame.metrics;
  const busiest = live ? largestShare(frame?.share("busy") ?? null) : peakOf(busyPast.data);
  const softirq = live ? largestShare(frame?.share("softirq") ?? null) : peakOf(softirqPast.data);
  const perInterrupt = live ? packetsPerInterrupt(view.window.recent, view.inventory) : null;
  const when = live ? "" : "mean of the range";
  return (
    <section className={`card ${styles.figures}`} aria-label="Figures">
      <One
        label="Receive"
        figure={bitRate(values.rx_bytes_per_s)}
        note={formatFigure(packetRate(values.rx_packets_per_s))}
      />
      <One label="Interrupts" figure={perSecond(values.interrupts_per_s)} note={live ? busiestCell(frame) : when} />
      <One
        label="Packets / interrupt"
        figure={ratio(perInterrupt)}
        note={!live ? "live only" : perInterrupt === null ? "" : "received, of NICs"}
      />
      <One
        label={live ? "Busiest CPU" : "Busiest CPU, highest"}
        figure={percent(busiest?.percent)}
        note={busiest === null ? "" : `CPU ${busiest.cpu}`}
        bad={isHot(busiest?.percent)}
      />
      <One
        label={live ? "Softirq, hottest" : "Softirq, highest"}
        figure={percent(softirq?.percent)}
        note={softirq === null ? "" : `CPU ${softirq.cpu}`}
        bad={isHot(softirq?.percent)}
      />
      <One
        label="RTT p99"
        figure={micros(values.rtt_p99_us)}
        note={
          values.rtt_p99_us === null
            ? frame === undefined
              ? ""
              : values.retransmits_per_s === null
                ? "TCP was not read"
                : "no active TCP"
            : `p50 ${formatFigure(micros(values.rtt_p50_us))}`
        }
      />
      <One
        label="Dropped"
        figure={perSecond(values.softnet_dropped_per_s)}
        note={`squeezed ${formatFigure(perSecond(values.squeezed_per_s))}`}
        bad={(values.softnet_dropped_per_s ?? 0) > 0}
      />
    </section>
  );
}

type OneProps = { label: string; figure: Figure; note: string; bad?: boolean };

function One({ label, figure, note, bad }: OneProps) {
  return (
    <div className="kpi">
      <small>{label}</small>
      <b className={bad ? "bad" : undefined}>
        {figure.value}
        <u>{figure.unit}</u>
      </b>
      <em>{note}</em>
    </div>
  );
}
