import { type ComponentProps, useEffect, useMemo, useState } from "react";
import { METRICS } from "../../api/metrics";
import type { Point } from "../../charts/seriesRing";
import { TimeChart } from "../../charts/TimeChart";
import { type Figure, packetRate } from "../../lib/format";
import { type ChartName, chartMetrics, formatOf, HISTORY_METRICS, type HistoryMetric } from "../../lib/metrics";
import styles from "../node.module.css";
import type { NodeView } from "../nodeView";
import type { LiveWindow } from "../time/liveWindow";

/** A chart. colours: of its lines, in the order of the metrics. format: overrides the format of the metrics' unit. */
type ChartOf = { title: string; colours: string[]; format?: (value: number | null) => Figure; absent: string };

const CHARTS: Record<ChartName, ChartOf> = {
  throughput: { title: "Throughput", colours: ["rx", "tx"], absent: "The netdevs' counters were not read." },
  packets: {
    title: "Packets",
    colours: ["rx", "tx"],
    format: packetRate,
    absent: "The netdevs' counters were not read.",
  },
  "round-trip": {
    title: "Round trip",
    colours: ["muted", "softirq", "bad"],
    absent: "No TCP connection to another host was active, or none could be read.",
  },
  interrupts: { title: "Interrupts", colours: ["rx"], absent: "/proc/interrupts was not read." },
  losses: {
    title: "Losses",
    colours: ["bad", "softirq", "tx", "user", "rx"],
    absent: "Neither netdevs, softnet_stat nor TCP counters were read.",
  },
  agent: { title: "Agent overhead", colours: ["user"], absent: "The agent did not report its CPU time." },
};

type Chart = ComponentProps<typeof TimeChart>;

/** The charts with one line for each of their metrics. */
const DRAWN: Pick<Chart, "title" | "lines" | "format" | "absent">[] = (
  Object.entries(CHARTS) as [ChartName, ChartOf][]
).map(([name, { title, colours, format, absent }]) => {
  const metrics = chartMetrics(name);
  return {
    title,
    lines: metrics.map((metric, place) => ({
      key: metric,
      name: METRICS[metric].short,
      colour: `var(--${colours[place % colours.length]})`,
    })),
    format: format ?? formatOf(metrics[0] as HistoryMetric),
    absent,
  };
});

/** Delay between the redraws of two charts: separate short tasks keep the page responsive. */
const STAGGER_MS = 40;

/** Rerenders with every step of the live window, delayed by the chart's index; returns the step count. */
export function useSteps(window: LiveWindow, turn: number): number {
  const [step, setStep] = useState(window.steps);
  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const stop = window.on(() => {
      clearTimeout(timer);
      timer = setTimeout(() => setStep(window.steps()), turn * STAGGER_MS);
    });
    return () => {
      clearTimeout(timer);
      stop();
    };
  }, [window, turn]);
  return step;
}

type Props = { view: NodeView; pastPoints: Point[] };

/** The metric charts on the page's time axis. pastPoints: points of a past range, empty while loading. */
export function MetricCharts({ view, pastPoints }: Props) {
  return (
    <div className={styles.charts}>
      {DRAWN.map((chart, turn) => (
        <One key={chart.title} chart={chart} turn={turn} view={view} pastPoints={pastPoints} />
      ))}
    </div>
  );
}

function One({ chart, turn, view, pastPoints }: Props & { chart: (typeof DRAWN)[number]; turn: number }) {
  const { window, past, marks, cursor, zoom, hold } = view;
  const step = useSteps(window, turn);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is mutated in place; step changes with it.
  const points = useMemo(() => (past === null ? window.points() : pastPoints), [past, pastPoints, window, step]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the window is mutated in place; step changes with it.
  const axis = useMemo(
    () => ({ range: past ?? window.range(), marks, cursor, onZoom: zoom, onHold: hold }),
    [past, window, marks, cursor, zoom, hold, step],
  );
  const sampled = useMemo(
    () => points.some((point) => HISTORY_METRICS.some((name) => typeof point[name] === "number")),
    [points],
  );
  return (
    <TimeChart
      {...chart}
      absent={sampled ? chart.absent : "No samples in this time range."}
      points={points}
      axis={axis}
    />
  );
}
