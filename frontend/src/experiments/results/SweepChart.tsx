import { useRef } from "react";
import { useWidth } from "../../charts/canvas";
import { Scroll } from "../../components/Scroll";
import { metricOf } from "../arms";
import { effectText, effectWithInterval, figureText } from "../format";
import type { Experiment, Interval } from "../types";
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
  const { points, numeric } = sweepPoints(experiment, metric);
  const factor = experiment.spec.factors[0];
  const axis = [factor?.name, factor?.unit].filter(Boolean).join(", ");
  const trend = experiment.analysis.trends.find((one) => one.metric === metric);
  const drawn = points.some((point) => point.authors !== null);
  return (
    <>
      <div className={styles.beside} data-two={drawn || undefined}>
        <figure>
          <figcaption>Here: {label}</figcaption>
          <LinePlot
            points={points}
            numeric={numeric}
            unit={unit}
            axis={axis}
            of={experiment.arms.length}
            label={label}
          />
        </figure>
        {drawn && (
          <figure>
            <figcaption>The authors: {label}</figcaption>
            <LinePlot
              points={points.map(({ authors: value, ...point }) => ({
                ...point,
                authors: null,
                y: value === null ? null : { value, low: value, high: value },
              }))}
              numeric={numeric}
              unit={unit}
              axis={axis}
              of={experiment.arms.length}
              label={`The authors' ${label}`}
            />
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

const HEIGHT = 240;
const MARGIN = { top: 10, right: 18, bottom: 40, left: 84 };

type PlotProps = { points: SweepPoint[]; numeric: boolean; unit: string; axis: string; of: number; label: string };

function LinePlot({ points, numeric, unit, axis, of, label }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const known = points.filter((point): point is SweepPoint & { y: Interval } => point.y !== null);
  const across = scaleOver(points.map(({ x }) => x));
  const up = scaleOver(
    known.flatMap(({ y }) => intervalEnds(y)),
    { zero: true },
  );
  const x = (value: number) => MARGIN.left + across.at(value) * (width - MARGIN.left - MARGIN.right);
  const y = (value: number) => MARGIN.top + (1 - up.at(value)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const bottom = HEIGHT - MARGIN.bottom;
  // labels are thinned where they would overlap
  const wide = numeric ? 64 : 12 + 7 * Math.max(...points.map(({ name }) => name.length));
  const every = Math.max(1, Math.ceil((points.length * wide) / Math.max(1, width - MARGIN.left - MARGIN.right)));
  return (
    <div ref={box} className={styles.plot} style={{ height: HEIGHT }}>
      {width > 0 && (
        <svg width={width} height={HEIGHT} role="img" aria-label={`${label} over ${axis}`}>
          {(known.length === 0 ? [] : up.ticks).map((tick) => (
            <g key={tick}>
              <line className={styles.grid} x1={MARGIN.left} x2={width - MARGIN.right} y1={y(tick)} y2={y(tick)} />
              <text className={styles.axis} x={MARGIN.left - 8} y={y(tick) + 4} textAnchor="end">
                {figureText(tick, unit)}
              </text>
            </g>
          ))}
          {points
            .filter((_, index) => index % every === 0)
            .map((point) => (
              <text key={point.place} className={styles.axis} x={x(point.x)} y={bottom + 14} textAnchor="middle">
                {numeric ? point.x : point.name}
              </text>
            ))}
          <text className={styles.axis} x={(MARGIN.left + width - MARGIN.right) / 2} y={HEIGHT - 6} textAnchor="middle">
            {axis}
          </text>
          {numeric && (
            <polyline
              className={styles.line}
              points={known.map((point) => `${x(point.x)},${y(point.y.value)}`).join(" ")}
            />
          )}
          {known.map((point) => {
            const mark = markOf(point.place, of);
            return (
              <g key={point.place} stroke={mark.colour}>
                {point.y.low < point.y.high && (
                  <path
                    d={`M${x(point.x)} ${y(point.y.low)}V${y(point.y.high)}m-4 0h8M${x(point.x) - 4} ${y(point.y.low)}h8`}
                  />
                )}
                <path
                  d={shapePath(mark.shape)}
                  transform={`translate(${x(point.x)} ${y(point.y.value)})`}
                  fill={mark.colour}
                >
                  <title>{`${point.name}: ${figureText(point.y.value, unit)} (${figureText(point.y.low, unit)} to ${figureText(point.y.high, unit)})`}</title>
                </path>
              </g>
            );
          })}
          {known.length === 0 && (
            <text className={styles.axis} x={width / 2} y={HEIGHT / 2} textAnchor="middle">
              No run has this metric yet.
            </text>
          )}
        </svg>
      )}
    </div>
  );
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
