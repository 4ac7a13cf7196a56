import { useEffect, useMemo, useState } from "react";
import { SmallTimeChart } from "../../charts/TimeChart";
import { HISTORY_METRICS } from "../../lib/metrics";
import { chartOf } from "./chartList";
import { LargeChart } from "./LargeChart";
import styles from "./timeseries.module.css";
import { type PointsOf, usePoints } from "./usePoints";

const SMALL = (["throughput", "packets", "interrupts", "softirq", "round-trip", "losses", "distance"] as const).map(
  (name) => ({
    name,
    chart: chartOf(name, true),
  }),
);

/** Counts to a number, one step a frame: what a step reveals is mounted in a task of its own. */
function useCountPerFrame(end: number): number {
  const [count, setCount] = useState(0);
  useEffect(() => {
    if (count === end) return;
    const frame = requestAnimationFrame(() => setCount(count + 1));
    return () => cancelAnimationFrame(frame);
  }, [count, end]);
  return count;
}

/** Seven small charts on the page's time axis, and the large one that is open. */
export function MetricCharts({ view, pastPoints }: PointsOf) {
  const { chart } = view.search;
  const drawn = useCountPerFrame(SMALL.length);
  return (
    <>
      <div className={`card ${styles.row}`}>
        {SMALL.map((one, turn) => (
          <Small key={one.name} {...one} turn={turn} isDrawn={turn < drawn} view={view} pastPoints={pastPoints} />
        ))}
      </div>
      {chart !== undefined && (
        <LargeChart key={chart === "polling" ? "distance" : chart} name={chart} view={view} pastPoints={pastPoints} />
      )}
    </>
  );
}

type SmallProps = PointsOf & (typeof SMALL)[number] & { turn: number; isDrawn: boolean };

function Small({ name, chart, turn, isDrawn, ...props }: SmallProps) {
  const { points, axis, kept } = usePoints(props, turn);
  const { search, navigate } = props.view;
  const isOpen = search.chart === name || (name === "distance" && search.chart === "polling");
  const sampled = useMemo(
    () => points.some((point) => HISTORY_METRICS.some((metric) => typeof point[metric] === "number")),
    [points],
  );
  return (
    <SmallTimeChart
      {...chart}
      absent={sampled ? chart.absent : "No samples in this time range."}
      points={points}
      axis={axis}
      kept={kept}
      isDrawn={isDrawn}
      isOpen={isOpen}
      onOpen={() => navigate({ chart: isOpen ? undefined : name })}
    />
  );
}
