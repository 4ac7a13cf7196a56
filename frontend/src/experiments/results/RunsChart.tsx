import { useMemo } from "react";
import { type PointSeries, PointsChart } from "../../charts/PointsChart";
import { Scroll } from "../../components/Scroll";
import { formatCount } from "../../lib/format";
import { armIndex, armName, metricOf } from "../arms";
import { figureText } from "../format";
import type { Experiment } from "../types";
import { MarkIcon, markOf, shapePath } from "./armMarks";
import { scaleOver } from "./axisScale";
import styles from "./results.module.css";

const HEIGHT = 220;

type Props = { experiment: Experiment; metric: string; asTable: boolean };

/** One metric of all runs in execution order, with a mark per arm. */
export function RunsChart({ experiment, metric, asTable }: Props) {
  if (asTable) return <RunsTable experiment={experiment} metric={metric} />;
  return (
    <>
      <Points experiment={experiment} metric={metric} />
      <ul className={styles.legend}>
        {experiment.arms.map((name, place) => (
          <li key={name}>
            <MarkIcon mark={markOf(place)} /> {name}
          </li>
        ))}
        <li className="muted">hollow: discarded by rule</li>
      </ul>
    </>
  );
}

function Points({ experiment, metric }: Omit<Props, "asTable">) {
  const { runs, runs_planned } = experiment;
  const { label, unit } = metricOf(experiment, metric);
  const series = useMemo(() => runSeries(experiment, metric), [experiment, metric]);
  const up = useMemo(() => scaleOver(series.flatMap(({ points }) => points.map(({ y }) => y))), [series]);
  const last = Math.max(1, runs_planned - 1, ...runs.map((run) => run.planned.number));
  const x = useMemo(
    () => ({ low: -0.5, high: last + 0.5, ticks: [0, last], format: (value: number) => `run ${value + 1}` }),
    [last],
  );
  const y = useMemo(() => ({ ...up, format: (value: number) => figureText(value, unit) }), [up, unit]);
  const end = aaEnd(runs);
  const band = useMemo(() => (end === 0 ? null : { from: -0.5, to: end - 0.5, name: "A/A runs" }), [end]);
  return (
    <PointsChart
      label={`${label} of ${formatCount(runs.length, "run")} in order`}
      height={HEIGHT}
      series={series}
      x={x}
      y={y}
      band={band}
      absent={runs.length === 0 ? "No run has finished yet." : "No run has this metric."}
    />
  );
}

/** The number of the first run after the A/A runs; 0 without them. */
function aaEnd(runs: Experiment["runs"]): number {
  const firstMain = runs.find((run) => run.planned.stage === "main")?.planned.number;
  if (firstMain !== undefined) return firstMain;
  return runs.some((run) => run.planned.stage === "aa") ? Math.max(...runs.map((run) => run.planned.number)) + 1 : 0;
}

function runSeries(experiment: Experiment, metric: string): PointSeries[] {
  const { unit } = metricOf(experiment, metric);
  return experiment.arms.map((name, place) => {
    const mark = markOf(place);
    const points = experiment.runs.flatMap(({ planned, figures, discarded }) => {
      const value = figures[metric] ?? null;
      if (value === null || Math.max(0, armIndex(experiment, planned.arm)) !== place) return [];
      const why = discarded === null ? "" : `, discarded: ${discarded}`;
      const text = `run ${planned.number + 1}, ${armName(experiment, planned.arm)}: ${figureText(value, unit)}${why}`;
      return [{ x: planned.number, y: value, text, hollow: discarded !== null }];
    });
    return { key: name, colour: mark.colour, path: shapePath(mark.shape), points };
  });
}

function RunsTable({ experiment, metric }: Omit<Props, "asTable">) {
  const { label, unit } = metricOf(experiment, metric);
  return (
    <Scroll label="Runs in order, table">
      <table className={`table ${styles.long}`}>
        <thead>
          <tr>
            <th className="n">run</th>
            <th>stage</th>
            <th className="n">block</th>
            <th>arm</th>
            <th className="n">{label}</th>
            <th>counts</th>
          </tr>
        </thead>
        <tbody>
          {experiment.runs.map(({ planned, attempt, figures, discarded }) => (
            <tr key={`${planned.number} ${attempt}`}>
              <td className="n">{planned.number + 1}</td>
              <td>{planned.stage === "aa" ? "A/A" : "comparison"}</td>
              <td className="n">{planned.block + 1}</td>
              <td>{armName(experiment, planned.arm)}</td>
              <td className="n">{figureText(figures[metric], unit)}</td>
              <td className="wrap">{discarded === null ? "yes" : `no: ${discarded}`}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
