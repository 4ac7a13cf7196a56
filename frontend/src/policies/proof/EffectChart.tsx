import { memo, useMemo, useRef, useState } from "react";
import { Area, CartesianGrid, ComposedChart, Line, ReferenceDot, ReferenceLine, XAxis, YAxis } from "recharts";
import { useWidth } from "../../charts/canvas";
import chartStyles from "../../charts/charts.module.css";
import { Cursor, useCursor } from "../../charts/cursor";
import { type Range, TimeOverlay } from "../../charts/TimeOverlay";
import { effectText } from "../../experiments/format";
import type { Scale } from "../../experiments/results/axisScale";
import { axisTime } from "../../lib/time";
import type { Policy } from "../types";
import {
  bandKey,
  type Course,
  coursesOf,
  effectScale,
  estimateKey,
  heldUntil,
  knownAt,
  rangeOf,
  rowsOf,
  spaced,
  withoutInterval,
} from "./course";
import { isDetected, provenText, type Standing, standingOf } from "./findings";
import styles from "./proof.module.css";
import type { PolicyProof } from "./types";

const HEIGHT = 270;
const MARGIN = { top: 8, right: 12, bottom: 0, left: 0 };
const AXIS = { width: 54, height: 20 };
const TICK = { fontSize: 11, fill: "var(--muted)" };
const LABEL_SHARE = 0.12; // of the width

/** The version in force is blue, one that rolls out violet, one that was rolled back amber, a retired one gray. */
const COLOURS: Record<Standing, string> = {
  "in force": "var(--accent)",
  "rolling out": "var(--change)",
  "rolled back": "var(--warn)",
  retired: "var(--muted)",
};

type Drawn = Course & { colour: string; standing: Standing; rolledBackMs: number | null };
type Props = {
  policy: Policy;
  proof: PolicyProof;
  metric: string;
  /** When the proof was received. */
  atMs: number;
};

/** The effect on a metric over time, with its interval, for each version. */
export function EffectChart({ policy, proof, metric, atMs }: Props) {
  const drawn = useMemo(
    () =>
      coursesOf(proof.versions, metric).map((course): Drawn => {
        const version = proof.versions.find((one) => one.version === course.version);
        const standing = version === undefined ? "retired" : standingOf(version, policy);
        const rolledBackMs = version?.rolled_back_at == null ? null : Date.parse(version.rolled_back_at);
        const untilMs = standing === "in force" || standing === "rolling out" ? atMs : (rolledBackMs ?? 0);
        return heldUntil({ ...course, standing, colour: COLOURS[standing], rolledBackMs }, untilMs);
      }),
    [proof.versions, metric, policy, atMs],
  );
  const label = proof.versions.flatMap(({ metrics }) => metrics).find((one) => one.metric === metric)?.label ?? metric;
  if (drawn.length === 0)
    return (
      <p className={`hatched ${styles.nothing}`}>
        <span>There is no figure of {label} yet.</span>
      </p>
    );
  return <Courses drawn={drawn} label={label} />;
}

function Courses({ drawn, label }: { drawn: Drawn[]; label: string }) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const [cursor] = useState(() => new Cursor());
  const [zoom, setZoom] = useState<Range | null>(null);
  const scale = useMemo(() => effectScale(drawn), [drawn]);
  const whole = useMemo(() => rangeOf(drawn), [drawn]);
  const range = zoom ?? whole;
  const words = drawn.map((course) => {
    const last = knownAt(course, null);
    return `version ${course.version} ${last === null ? "unknown" : provenText(last)}`;
  });
  return (
    <>
      <div className={styles.legend}>
        {drawn.map((course) => (
          <Key key={course.version} course={course} cursor={cursor} />
        ))}
        <span className="grow" />
        {zoom !== null && (
          <button type="button" className="link" onClick={() => setZoom(null)}>
            Show all
          </button>
        )}
        <span className="muted">
          {withoutInterval(drawn).length > 0 && (
            <>
              <i className={`hatched ${styles.hatchedKey}`} /> too few blocks for an interval
            </>
          )}
        </span>
      </div>
      <div
        ref={box}
        className={chartStyles.plot}
        style={{ height: HEIGHT }}
        role="img"
        aria-label={`Effect on ${label} over time: ${words.join(", ")}`}
      >
        {width > 0 && <Plot drawn={drawn} scale={scale} range={range} width={width} />}
        <div
          className={chartStyles.area}
          style={{ top: MARGIN.top, left: AXIS.width, right: MARGIN.right, bottom: AXIS.height }}
        >
          <TimeOverlay
            range={range}
            marks={[]}
            gaps={withoutInterval(drawn)}
            cursor={cursor}
            onZoom={setZoom}
            onHold={() => undefined}
          />
        </div>
      </div>
    </>
  );
}

/** A version's color, and what was known about it at the crosshair, or is known now. */
function Key({ course, cursor }: { course: Drawn; cursor: Cursor }) {
  const point = knownAt(course, useCursor(cursor));
  return (
    <span>
      <i style={{ background: course.colour }} /> v{course.version} <span className="muted">{course.standing}</span>{" "}
      <b>{point === null ? "–" : provenText(point)}</b>
    </span>
  );
}

type PlotProps = { drawn: Drawn[]; scale: Scale; range: Range; width: number };

const Plot = memo(function Plot({ drawn, scale, range, width }: PlotProps) {
  const rows = useMemo(() => rowsOf(drawn), [drawn]);
  const length = range.to - range.from;
  const parts = width < 500 ? 2 : 5;
  const ticks = Array.from({ length: parts + 1 }, (_, index) => range.from + (length * index) / parts);
  const starts = drawn.map(({ version, from }) => ({ t: from, text: `v${version}` }));
  const labelled = new Set(spaced(starts, LABEL_SHARE * length));
  return (
    <ComposedChart width={width} height={HEIGHT} data={rows} margin={MARGIN} accessibilityLayer={false}>
      <CartesianGrid vertical={false} stroke="var(--line)" />
      <XAxis
        dataKey="t"
        type="number"
        domain={[range.from, range.to]}
        ticks={ticks}
        allowDataOverflow
        height={AXIS.height}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={(value: number) => axisTime(value, length)}
      />
      <YAxis
        domain={[scale.low, scale.high]}
        ticks={scale.ticks}
        allowDataOverflow
        width={AXIS.width}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={effectText}
      />
      {drawn.map(({ version, colour, standing }) => (
        <Area
          key={bandKey(version)}
          dataKey={bandKey(version)}
          type="stepAfter"
          connectNulls
          fill={colour}
          fillOpacity={standing === "rolling out" ? 0.08 : 0.22}
          stroke={colour}
          strokeWidth={standing === "rolling out" ? 1 : 0}
          strokeDasharray="4 3"
          activeDot={false}
          isAnimationActive={false}
        />
      ))}
      <ReferenceLine y={0} stroke="var(--muted)" strokeWidth={1.5} />
      {starts.map((start) => (
        <ReferenceLine
          key={start.text}
          x={start.t}
          stroke="var(--change)"
          strokeDasharray="3 3"
          label={
            labelled.has(start)
              ? { value: `${start.text} in force`, position: "insideTopLeft", fill: "var(--change)", fontSize: 11 }
              : ""
          }
        />
      ))}
      {drawn.map(({ version, rolledBackMs }) =>
        rolledBackMs === null ? null : (
          <ReferenceLine
            key={`${version} back`}
            x={Math.min(rolledBackMs, range.to)}
            stroke="var(--warn)"
            strokeDasharray="3 3"
            label={{
              value: `v${version} rolled back`,
              position: "insideTopRight",
              fill: "var(--warn)",
              fontSize: 11,
            }}
          />
        ),
      )}
      {drawn.map(({ version, colour }) => (
        <Line
          key={estimateKey(version)}
          dataKey={estimateKey(version)}
          type="stepAfter"
          connectNulls
          stroke={colour}
          strokeWidth={1.8}
          dot={false}
          activeDot={false}
          isAnimationActive={false}
        />
      ))}
      {drawn.map(({ version, proof, colour }) =>
        proof.finding_since === null || !isDetected(proof.finding) ? null : (
          <ReferenceDot
            key={`${version} detected`}
            x={Math.min(Date.parse(proof.finding_since), range.to)}
            y={0}
            r={5}
            fill="var(--panel)"
            stroke={proof.finding === "worsens" ? "var(--bad)" : proof.finding === "improves" ? "var(--ok)" : colour}
            strokeWidth={2}
          />
        ),
      )}
    </ComposedChart>
  );
});
