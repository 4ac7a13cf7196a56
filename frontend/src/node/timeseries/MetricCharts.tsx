import { useEffect, useMemo, useState } from "react";
import type { Point } from "../../charts/seriesRing";
import { type LineOf, TimeChart } from "../../charts/TimeChart";
import { bitRate, type Figure, micros, packetRate, perSecond } from "../../lib/format";
import styles from "../node.module.css";
import type { NodeView } from "../nodeView";
import type { LiveWindow } from "../time/liveWindow";
import { METRICS } from "./metricValues";

type ChartOf = { title: string; lines: LineOf[]; format: (value: number | null) => Figure; absent: string };

const CHARTS: ChartOf[] = [
  {
    title: "Throughput",
    lines: [
      { key: "rx_bytes_per_s", name: "received", colour: "var(--rx)" },
      { key: "tx_bytes_per_s", name: "sent", colour: "var(--tx)" },
    ],
    format: bitRate,
    absent: "The netdevs' counters were not read.",
  },
  {
    title: "Packets",
    lines: [
      { key: "rx_packets_per_s", name: "received", colour: "var(--rx)" },
      { key: "tx_packets_per_s", name: "sent", colour: "var(--tx)" },
    ],
    format: packetRate,
    absent: "The netdevs' counters were not read.",
  },
  {
    title: "Round trip",
    lines: [
      { key: "rtt_p50_us", name: "p50", colour: "var(--muted)" },
      { key: "rtt_p95_us", name: "p95", colour: "var(--softirq)" },
      { key: "rtt_p99_us", name: "p99", colour: "var(--bad)" },
    ],
    format: micros,
    absent: "No TCP connection to another host was active, or none could be read.",
  },
  {
    title: "Interrupts",
    lines: [{ key: "interrupts_per_s", name: "of all devices", colour: "var(--rx)" }],
    format: perSecond,
    absent: "/proc/interrupts was not read.",
  },
  {
    title: "Losses",
    lines: [
      { key: "dropped_per_s", name: "dropped", colour: "var(--bad)" },
      { key: "squeezed_per_s", name: "squeezed", colour: "var(--softirq)" },
      { key: "retransmits_per_s", name: "retransmitted", colour: "var(--tx)" },
    ],
    format: perSecond,
    absent: "Neither netdevs, softnet_stat nor TCP counters were read.",
  },
  {
    title: "The agent itself",
    lines: [{ key: "agent_cpu_percent", name: "of one CPU", colour: "var(--user)" }],
    format: (value) => ({ value: value === null ? "–" : value.toFixed(2), unit: value === null ? "" : "%" }),
    absent: "The agent did not tell.",
  },
];

/** Time between two charts' redrawing, so that each is a short task of its own and the page stays smooth. */
const APART_MS = 40;

/** Renders anew with every step of the live window, each chart in its turn. */
export function useSteps(window: LiveWindow, turn: number): number {
  const [step, setStep] = useState(window.steps);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = window.on(() => {
      clearTimeout(timer);
      timer = setTimeout(() => setStep(window.steps()), turn * APART_MS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [window, turn]);
  return step;
}

type Props = { view: NodeView; pastPoints: Point[] };

/** The lines over time, all on the page's one time axis. pastPoints: a past range's, empty while they are fetched. */
export function MetricCharts({ view, pastPoints }: Props) {
  return (
    <div className={styles.charts}>
      {CHARTS.map((chart, turn) => (
        <One key={chart.title} chart={chart} turn={turn} view={view} pastPoints={pastPoints} />
      ))}
    </div>
  );
}

function One({ chart, turn, view, pastPoints }: Props & { chart: ChartOf; turn: number }) {
  const { window, past, marks, cursor, zoom, hold } = view;
  const step = useSteps(window, turn);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is written to in place; step tells when.
  const points = useMemo(() => (past === null ? window.points() : pastPoints), [past, pastPoints, window, step]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is written to in place; step tells when.
  const axis = useMemo(
    () => ({ range: past ?? window.range(), marks, cursor, onZoom: zoom, onHold: hold }),
    [past, window, marks, cursor, zoom, hold, step],
  );
  const sampled = useMemo(
    () => points.some((point) => METRICS.some((name) => typeof point[name] === "number")),
    [points],
  );
  return (
    <TimeChart {...chart} absent={sampled ? chart.absent : "No samples in this time."} points={points} axis={axis} />
  );
}
