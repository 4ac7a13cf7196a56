import { memo, useMemo, useRef } from "react";
import { CartesianGrid, ReferenceLine, Scatter, ScatterChart, Tooltip, XAxis, YAxis } from "recharts";
import { useWidth } from "../../../charts/canvas";
import chartStyles from "../../../charts/charts.module.css";
import { metricOf } from "../../arms";
import { figureText } from "../../format";
import type { Experiment } from "../../types";
import { intervalEnds, scaleOver } from "../axisScale";
import { GROUPS, groupOf } from "./candidateStates";
import styles from "./tune.module.css";
import type { Candidate } from "./tuneActions";

const HEIGHT = 300;
const MARGIN = { top: 10, right: 18, bottom: 22, left: 6 };
const TICK = { fontSize: 11, fill: "var(--muted)" };
const AXIS = { width: 84, height: 24 };

type Point = { x: number; y: number; candidate: Candidate };

/** Every measured combination of a tune: the primary metric against the second one, with the front and the limit. */
export function FrontChart({ experiment }: { experiment: Experiment }) {
  const points = useMemo(
    () =>
      (experiment.tune?.candidates ?? []).flatMap((candidate): Point[] =>
        candidate.cost === null || candidate.latency === null
          ? []
          : [{ x: candidate.cost.value, y: candidate.latency.value, candidate }],
      ),
    [experiment.tune],
  );
  if (points.length === 0) return <p className="muted">No combination has both metrics yet.</p>;
  return <Plot points={points} experiment={experiment} />;
}

function Plot({ points, experiment }: Omit<PointsProps, "width">) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const { spec } = experiment;
  const [x, y] = [metricOf(experiment, spec.primary), metricOf(experiment, spec.tune.latency)];
  return (
    <figure className={styles.front}>
      <div
        ref={box}
        className={chartStyles.plot}
        style={{ height: HEIGHT }}
        role="img"
        aria-label={`${y.label} over ${x.label} of ${points.length} combinations; the table below has the same figures`}
      >
        {width > 0 && <Points points={points} experiment={experiment} width={width} />}
      </div>
      <ul className={styles.legend}>
        {GROUPS.map(({ name, label, colour, hollow }) => (
          <li key={name}>
            <svg width="12" height="12" viewBox="-6 -6 12 12" aria-hidden="true">
              <circle r="4" fill={hollow ? "none" : colour} stroke={colour} strokeWidth="1.5" />
            </svg>{" "}
            {label}
          </li>
        ))}
        <li className="muted">line: the front, where neither metric improves without the other getting worse</li>
      </ul>
    </figure>
  );
}

type PointsProps = { points: Point[]; experiment: Experiment; width: number };

const Points = memo(function Points({ points, experiment, width }: PointsProps) {
  const { spec } = experiment;
  const [x, y] = [metricOf(experiment, spec.primary), metricOf(experiment, spec.tune.latency)];
  const across = useMemo(() => scaleOver(points.flatMap(({ candidate }) => intervalEnds(candidate.cost))), [points]);
  const limit = spec.tune.limit;
  const up = useMemo(
    () => scaleOver([...points.map((point) => point.y), ...(limit === null ? [] : [limit])], { zero: true }),
    [points, limit],
  );
  const front = useMemo(
    () => points.filter(({ candidate }) => candidate.front).toSorted((a, b) => a.x - b.x),
    [points],
  );
  const ends = (ticks: number[]): [number, number] => [ticks[0] ?? 0, ticks.at(-1) ?? 1];
  return (
    <ScatterChart width={width} height={HEIGHT} margin={MARGIN} accessibilityLayer={false}>
      <CartesianGrid stroke="var(--line)" />
      <XAxis
        type="number"
        dataKey="x"
        domain={ends(across.ticks)}
        ticks={across.ticks}
        height={AXIS.height}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={(value: number) => figureText(value, x.unit)}
        label={{ value: x.label, position: "insideBottom", offset: -14, ...TICK }}
      />
      <YAxis
        type="number"
        dataKey="y"
        domain={ends(up.ticks)}
        ticks={up.ticks}
        width={AXIS.width}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={(value: number) => figureText(value, y.unit)}
        label={{ value: y.label, angle: -90, position: "insideLeft", style: { textAnchor: "middle" }, ...TICK }}
      />
      <Tooltip
        isAnimationActive={false}
        cursor={false}
        content={({ payload }) => {
          const point = payload?.[0]?.payload as Point | undefined;
          return point === undefined ? null : <Tip candidate={point.candidate} experiment={experiment} />;
        }}
      />
      {limit !== null && (
        <ReferenceLine
          y={limit}
          stroke="var(--bad)"
          strokeDasharray="4 4"
          label={{ value: `limit ${figureText(limit, y.unit)}`, position: "insideTopRight", ...TICK }}
        />
      )}
      <Scatter
        data={front}
        line={{ stroke: "var(--accent)", strokeWidth: 1.5 }}
        shape={() => <g />}
        isAnimationActive={false}
        legendType="none"
        tooltipType="none"
      />
      {GROUPS.map(({ name, colour, hollow, radius }) => (
        <Scatter
          key={name}
          data={points.filter(({ candidate }) => groupOf(candidate) === name)}
          isAnimationActive={false}
          shape={({ cx, cy }: { cx?: number; cy?: number }) => (
            <circle
              cx={cx}
              cy={cy}
              r={radius}
              fill={hollow ? "var(--panel)" : colour}
              stroke={colour}
              strokeWidth={1.5}
            />
          )}
        />
      ))}
    </ScatterChart>
  );
});

function Tip({ candidate, experiment }: { candidate: Candidate; experiment: Experiment }) {
  const { spec } = experiment;
  const figure = (name: string, value: number | undefined) => figureText(value, metricOf(experiment, name).unit);
  return (
    <div className={styles.tip}>
      <b>{candidate.name}</b>
      <div>
        {metricOf(experiment, spec.primary).label}: {figure(spec.primary, candidate.cost?.value)}
      </div>
      <div>
        {metricOf(experiment, spec.tune.latency).label}: {figure(spec.tune.latency, candidate.latency?.value)}
      </div>
      {candidate.why !== "" && <div className="muted">{candidate.why}</div>}
    </div>
  );
}
