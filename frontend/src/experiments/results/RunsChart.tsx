import { memo, useMemo, useRef } from "react";
import { useWidth } from "../../charts/canvas";
import { Scroll } from "../../components/Scroll";
import { armIndex, armName, metricOf } from "../arms";
import { figureText } from "../format";
import type { Experiment } from "../types";
import { MarkIcon, markOf, shapePath } from "./armMarks";
import { scaleOver } from "./axisScale";
import styles from "./results.module.css";

const HEIGHT = 220;
const MARGIN = { top: 18, right: 12, bottom: 20, left: 84 };

type Props = { experiment: Experiment; metric: string; asTable: boolean };

/** One metric of all runs in execution order, with a mark per arm. */
export function RunsChart({ experiment, metric, asTable }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const arms = experiment.arms.length;
  if (asTable) return <RunsTable experiment={experiment} metric={metric} />;
  return (
    <>
      <div ref={box} className={styles.plot} style={{ height: HEIGHT }}>
        {width > 0 && <Points experiment={experiment} metric={metric} width={width} />}
      </div>
      <ul className={styles.legend}>
        {experiment.arms.map((name, place) => (
          <li key={name}>
            <MarkIcon mark={markOf(place, arms)} /> {name}
          </li>
        ))}
        <li className="muted">hollow: discarded by rule</li>
      </ul>
    </>
  );
}

const Points = memo(function Points({ experiment, metric, width }: Omit<Props, "asTable"> & { width: number }) {
  const { runs, arms, runs_planned } = experiment;
  const { label, unit } = metricOf(experiment, metric);
  const values = useMemo(() => runs.map((run) => run.figures[metric] ?? null), [runs, metric]);
  const scale = useMemo(() => scaleOver(values.filter((value) => value !== null)), [values]);
  const last = Math.max(1, runs_planned - 1, ...runs.map((run) => run.planned.number));
  const inner = width - MARGIN.left - MARGIN.right;
  const x = (number: number) => MARGIN.left + ((number + 0.5) / (last + 1)) * inner;
  const y = (value: number) => MARGIN.top + (1 - scale.at(value)) * (HEIGHT - MARGIN.top - MARGIN.bottom);
  const firstMain = runs.find((run) => run.planned.stage === "main")?.planned.number;
  const aaEnd =
    firstMain ??
    (runs.some((run) => run.planned.stage === "aa") ? Math.max(...runs.map((r) => r.planned.number)) + 1 : 0);
  const known = values.some((value) => value !== null);
  return (
    <svg width={width} height={HEIGHT} role="img" aria-label={`${label} of ${runs.length} runs in order`}>
      {aaEnd > 0 && (
        <g>
          <rect
            className={styles.aa}
            x={MARGIN.left}
            y={MARGIN.top}
            width={x(aaEnd - 0.5) - MARGIN.left}
            height={HEIGHT - MARGIN.top - MARGIN.bottom}
          />
          <text className={styles.axis} x={MARGIN.left + 4} y={12}>
            A/A runs
          </text>
        </g>
      )}
      {known &&
        scale.ticks.map((tick) => (
          <g key={tick}>
            <line className={styles.grid} x1={MARGIN.left} x2={width - MARGIN.right} y1={y(tick)} y2={y(tick)} />
            <text className={styles.axis} x={MARGIN.left - 8} y={y(tick) + 4} textAnchor="end">
              {figureText(tick, unit)}
            </text>
          </g>
        ))}
      <text className={styles.axis} x={MARGIN.left} y={HEIGHT - 4}>
        run 1
      </text>
      <text className={styles.axis} x={width - MARGIN.right} y={HEIGHT - 4} textAnchor="end">
        run {last + 1}
      </text>
      {runs.map((run, index) => {
        const value = values[index] ?? null;
        if (value === null) return null;
        const { planned, attempt, discarded } = run;
        const mark = markOf(Math.max(0, armIndex(experiment, planned.arm)), arms.length);
        return (
          <path
            key={`${planned.number} ${attempt}`}
            d={shapePath(mark.shape)}
            transform={`translate(${x(planned.number)} ${y(value)})`}
            fill={discarded === null ? mark.colour : "none"}
            stroke={mark.colour}
          >
            <title>
              {`run ${planned.number + 1}, ${armName(experiment, planned.arm)}: ${figureText(value, unit)}${discarded === null ? "" : `, discarded: ${discarded}`}`}
            </title>
          </path>
        );
      })}
      {!known && (
        <text className={styles.axis} x={width / 2} y={HEIGHT / 2} textAnchor="middle">
          {runs.length === 0 ? "No run has finished yet." : "No run has this metric."}
        </text>
      )}
    </svg>
  );
});

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
