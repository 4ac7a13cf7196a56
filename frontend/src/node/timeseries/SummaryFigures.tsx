import { useQuery } from "@tanstack/react-query";
import { FIRST_LABEL_ID } from "../../api/constants";
import { type HeatBlock, NO_DATA } from "../../charts/heatBlock";
import type { Point } from "../../charts/seriesRing";
import { bitRate, type Figure, formatFigure, micros, packetRate, percent, perSecond, ratio } from "../../lib/format";
import { isHot } from "../../lib/metrics";
import { clock } from "../../lib/time";
import type { RatesFrame } from "../../live/frames";
import { type NodeView, useFrames } from "../nodeView";
import { heatQuery } from "../queries";
import type { Hottest } from "../time/load";
import { useLoad } from "../time/useLoad";
import { meanOf, packetsPerInterrupt } from "./metricValues";
import styles from "./timeseries.module.css";

/** A CPU, and the highest share that it had in a past range. */
function cpuNote(hottest: Hottest | null, block: HeatBlock | undefined): string {
  if (hottest === null) return "";
  const peak = block?.max(hottest.cpu) ?? NO_DATA;
  return `CPU ${hottest.cpu}${peak === NO_DATA ? "" : ` · up to ${formatFigure(percent(peak / 2))}`}`;
}

/** The IRQ with the highest rate on one CPU in a frame, `most: IRQ 41`; without architecture rows. */
function busiestIrq(frame: RatesFrame | undefined): string {
  const irqs = frame?.irqs;
  if (!irqs) return "";
  let best = -1;
  for (let index = 0; index < irqs.ids.length; index++) {
    if ((irqs.ids[index] ?? 0) >= FIRST_LABEL_ID) continue;
    if (best === -1 || (irqs.counts[index] ?? 0) > (irqs.counts[best] ?? 0)) best = index;
  }
  return best === -1 ? "" : `most: IRQ ${irqs.ids[best]}`;
}

/** Seven summary figures of the last interval, or over the past range. */
export function SummaryFigures({ view, pastPoints }: { view: NodeView; pastPoints: Point[] }) {
  useFrames(view.window);
  const busyPast = useQuery(heatQuery(view.node.id, "busy", view.past)).data;
  const softirqPast = useQuery(heatQuery(view.node.id, "softirq", view.past)).data;
  const live = view.past === null;
  const frame = live ? view.window.last : undefined;
  const { staleSince, kept } = view;
  const values = frame?.metrics ?? meanOf(live ? [{ ...kept?.values, t: 0 }] : pastPoints);
  const busiest = useLoad(view, "busy").hottest ?? kept?.busiest ?? null;
  const softirq = useLoad(view, "softirq").hottest ?? kept?.softirq ?? null;
  const perInterrupt = live ? packetsPerInterrupt(view.window.recent, view.inventory) : null;
  const when = live ? "" : "mean of the range";
  const at = staleSince === null ? null : clock(staleSince);
  return (
    <section className={`card ${styles.figures}`} aria-label="Figures">
      <One
        at={at}
        label="Receive"
        figure={bitRate(values.rx_bytes_per_s)}
        note={formatFigure(packetRate(values.rx_packets_per_s))}
      />
      <One
        at={at}
        label="Interrupts"
        figure={perSecond(values.interrupts_per_s)}
        note={live ? busiestIrq(frame) : when}
      />
      <One
        at={at}
        label="Packets / interrupt"
        figure={ratio(perInterrupt)}
        note={!live ? "live only" : perInterrupt === null ? "" : "received, of NICs"}
      />
      <One
        at={at}
        label={live ? "Busiest CPU, 5 s" : "Busiest CPU, mean"}
        figure={percent(busiest?.percent)}
        note={cpuNote(busiest, busyPast)}
        bad={isHot(busiest?.percent)}
      />
      <One
        at={at}
        label={live ? "Most softirq, 5 s" : "Most softirq, mean"}
        figure={percent(softirq?.percent)}
        note={cpuNote(softirq, softirqPast)}
        bad={isHot(softirq?.percent)}
      />
      <One
        at={at}
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
        at={at}
        label="Dropped"
        figure={perSecond(values.softnet_dropped_per_s)}
        note={`squeezed ${formatFigure(perSecond(values.squeezed_per_s))}`}
        bad={(values.softnet_dropped_per_s ?? 0) > 0}
      />
    </section>
  );
}

/** at: the time of a stale figure, in place of the note. */
type OneProps = { at: string | null; label: string; figure: Figure; note: string; bad?: boolean };

function One({ at, label, figure, note, bad }: OneProps) {
  return (
    <div className="kpi">
      <small>{label}</small>
      <b className={at !== null ? "muted" : bad ? "bad" : undefined}>
        {figure.value}
        <u>{figure.unit}</u>
      </b>
      <em title={at === null ? note : `Last value, of ${at}`}>{at ?? note}</em>
    </div>
  );
}
