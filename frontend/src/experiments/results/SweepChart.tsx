import { useMemo } from "react";
import { type PointSeries, PointsChart } from "../../charts/PointsChart";
import { Scroll } from "../../components/Scroll";
import { metricOf } from "../arms";
import { effectText, effectWithInterval, figureText } from "../format";
import type { Experiment } from "../types";
import { AuthorsTable } from "./AuthorsTable";
import { markOf, shapePath } from "./armMarks";
import { intervalEnds, scaleOver } from "./axisScale";
import styles from "./results.module.css";
import { type SweepPoint, sweepMatrix, sweepPoints } from "./sweepPoints";

type Props = { experiment: Experiment; metric: string; paper: string };

/** A metric by factor, a line for one factor, a matrix for two, and the authors' values of it. */
export function SweepChart({ experiment, metric, paper }: Props) {
  const printed = experiment.published.filter(
    (row) => row.metric === metric || row.value === null || row.unmeasured_because !== null,
  );
  return (
    <>
      {experiment.spec.factors.length > 1 ? (
        <Matrix experiment={experiment} metric={metric} />
      ) : (
        <Lines experiment={experiment} metric={metric} />
      )}
      {printed.length > 0 && <AuthorsTable rows={printed} experiment={experiment} paper={paper} />}
    </>
  );
}

type MetricProps = Omit<Props, "paper">;

function Lines({ experiment, metric }: MetricProps) {
  const { label, unit } = metricOf(experiment, metric);
  const { points, numeric } = useMemo(() => sweepPoints(experiment, metric), [experiment, metric]);
  const authors = useMemo(() => points.map(authorsPoint), [points]);
  const factor = experiment.spec.factors[0];
  const axis = [factor?.name, factor?.unit].filter(Boolean).join(", ");
  const trend = experiment.analysis.trends.find((one) => one.metric === metric);
  const drawn = points.some((point) => point.authors !== null);
  return (
    <>
      <div className={styles.beside} data-two={drawn || undefined}>
        <figure>
          <figcaption>Here: {label}</figcaption>
          <LinePlot points={points} numeric={numeric} unit={unit} axis={axis} label={label} />
        </figure>
        {drawn && (
          <figure>
            <figcaption>The authors: {label}</figcaption>
            <LinePlot points={authors} numeric={numeric} unit={unit} axis={axis} label={`The authors' ${label}`} />
          </figure>
        )}
      </div>
      {trend !== undefined && trend.rho !== null && (
        <p className="muted">
          Trend over {factor?.name}: Spearman's ρ {trend.rho.toFixed(2).replace("-", "−")}
          {trend.p === null ? "" : `, p ${trend.p < 0.001 ? "< 0.001" : trend.p.toFixed(3)}`}.
        </p>
      )}
    </>
  );
}

/** A point with the authors' value in the place of this node's. */
function authorsPoint({ authors: value, ...point }: SweepPoint): SweepPoint {
  return { ...point, authors: null, y: value === null ? null : { value, low: value, high: value } };
}

const HEIGHT = 240;
/** Pixels that a label of a numeric level takes, and of a letter of another one, at the usual width of the chart. */
const LABELS = { numeric: 64, letter: 7, plot: 420 };

type PlotProps = { points: SweepPoint[]; numeric: boolean; unit: string; axis: string; label: string };

function LinePlot({ points, numeric, unit, axis, label }: PlotProps) {
  const series = useMemo(() => sweepSeries(points, unit), [points, unit]);
  const x = useMemo(() => {
    // labels are thinned where they would overlap
    const wide = numeric ? LABELS.numeric : 12 + LABELS.letter * Math.max(...points.map(({ name }) => name.length));
    const every = Math.max(1, Math.ceil((points.length * wide) / LABELS.plot));
    const names = new Map(points.map((point) => [point.x, numeric ? String(point.x) : point.name]));
    return {
      ...scaleOver(points.map((point) => point.x)),
      ticks: points.filter((_, index) => index % every === 0).map((point) => point.x),
      format: (value: number) => names.get(value) ?? "",
      label: axis,
    };
  }, [points, numeric, axis]);
  const y = useMemo(() => {
    const ends = points.flatMap((point) => intervalEnds(point.y));
    return { ...scaleOver(ends, { zero: true }), format: (value: number) => figureText(value, unit) };
  }, [points, unit]);
  return (
    <PointsChart
      label={`${label} over ${axis}`}
      height={HEIGHT}
      series={series}
      x={x}
      y={y}
      joined={numeric}
      absent="No run has this metric yet."
    />
  );
}

function sweepSeries(points: SweepPoint[], unit: string): PointSeries[] {
  return points.flatMap(({ place, name, x, y }) => {
    if (y === null) return [];
    const mark = markOf(place);
    const interval = y.low < y.high ? ` (${figureText(y.low, unit)} to ${figureText(y.high, unit)})` : "";
    const text = `${name}: ${figureText(y.value, unit)}${interval}`;
    const point = { x, y: y.value, low: y.low, high: y.high, text };
    return [{ key: String(place), colour: mark.colour, path: shapePath(mark.shape), points: [point] }];
  });
}

function Matrix({ experiment, metric }: MetricProps) {
  const { unit, label } = metricOf(experiment, metric);
  const cells = sweepMatrix(experiment, metric);
  const [rows, columns] = experiment.spec.factors;
  const values = cells.flat().flatMap((cell) => (cell === null ? [] : [cell.value]));
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const shade = (value: number) =>
    `color-mix(in srgb, var(--accent) ${Math.round(high > low ? (40 * (value - low)) / (high - low) : 0)}%, transparent)`;
  return (
    <Scroll label={`${label} of all combinations`}>
      <table className={`table ${styles.matrix}`}>
        <thead>
          <tr>
            <th scope="col">
              {rows?.name} ↓ · {columns?.name} →
            </th>
            {columns?.levels.map((level) => (
              <th key={level.name} className="n" scope="col">
                {level.name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows?.levels.map((level, row) => (
            <tr key={level.name}>
              <th scope="row">{level.name}</th>
              {columns?.levels.map((other, column) => {
                const cell = cells[row]?.[column] ?? null;
                const effect =
                  experiment.analysis.comparisons.find(
                    (one) => one.metric === metric && one.arm[0] === row && one.arm[1] === column,
                  )?.effect ?? null;
                return (
                  <td
                    key={other.name}
                    className={`n ${cell === null ? "hatched" : ""}`}
                    style={cell === null ? undefined : { background: shade(cell.value) }}
                    title={effect === null ? undefined : effectWithInterval(effect)}
                  >
                    {figureText(cell?.value, unit)}
                    <small>
                      {effect === null ? (row + column === 0 ? "baseline" : " ") : effectText(effect.value)}
                    </small>
                  </td>
                );
              })}
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
