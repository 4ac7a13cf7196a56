import { memo, useMemo, useRef } from "react";
import { CartesianGrid, Line, LineChart, ReferenceLine, XAxis, YAxis } from "recharts";
import { type Figure, formatFigure } from "../lib/format";
import { axisTime } from "../lib/time";
import { useWidth } from "./canvas";
import styles from "./charts.module.css";
import { type Cursor, useCursor } from "./cursor";
import type { Point } from "./seriesRing";
import { type Range, type TimeAxis, TimeOverlay } from "./TimeOverlay";

export type ChartLine = { key: string; name: string; colour: string };

const HEIGHT = 138;
const MARGIN = { top: 8, right: 8, bottom: 0, left: 0 };
const AXIS = { width: 64, height: 20 };
const TICK = { fontSize: 10, fill: "var(--muted)" };

/** The smallest of 1, 2, 2.5, 5 × 10ⁿ that is ≥ a value, as the end of an axis. */
export function axisEnd(value: number): number {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 2.5, 5, 10].find((step) => step * power >= value * 0.9999) ?? 10) * power;
}

/** Time ranges in which no line has a value. */
export function gapsOf(points: Point[], keys: string[], range: Range): Range[] {
  const step = points.length > 1 ? (points[1]?.t ?? 0) - (points[0]?.t ?? 0) : 0;
  const gaps: Range[] = [];
  for (const point of points) {
    if (keys.some((key) => point[key] !== null && point[key] !== undefined)) continue;
    const open = gaps.at(-1);
    if (open !== undefined && open.to >= point.t - 1) open.to = point.t + step;
    else gaps.push({ from: point.t, to: point.t + step });
  }
  return gaps.filter((gap) => gap.to > range.from && gap.from < range.to);
}

/** Age in steps up to which a value counts as current. */
const MAX_AGE_STEPS = 3;

function valueAt(points: Point[], key: string, timeMs: number | null): number | null {
  if (timeMs === null)
    return points.slice(-MAX_AGE_STEPS).findLast((point) => typeof point[key] === "number")?.[key] ?? null;
  const after = points.findIndex((point) => point.t > timeMs);
  const at = after === -1 ? points.length - 1 : after - 1;
  return points[at]?.[key] ?? null;
}

type ReadoutProps = { lines: ChartLine[]; points: Point[]; format: (value: number | null) => Figure; cursor: Cursor };

/** The lines' values under the crosshair, or their latest values. */
function Readout({ lines, points, format, cursor }: ReadoutProps) {
  const timeMs = useCursor(cursor);
  return (
    <span className={styles.readout}>
      {lines.map(({ key, name, colour }) => (
        <span key={key}>
          <i style={{ background: colour }} />
          {name} <b>{formatFigure(format(valueAt(points, key, timeMs)))}</b>
        </span>
      ))}
    </span>
  );
}

type ChartProps = {
  title: string;
  lines: ChartLine[];
  points: Point[];
  format: (value: number | null) => Figure;
  axis: TimeAxis;
  /** The reason shown when no line has a value in the range. */
  absent: string;
  /** A reference value, drawn as a dashed line. */
  level?: number;
};

/** A line chart over time with the page's crosshair, marks and gaps. */
export function TimeChart({ title, lines, points, format, axis, absent, level }: ChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const keys = useMemo(() => lines.map(({ key }) => key), [lines]);
  const largest = useMemo(
    () => points.reduce((most, point) => Math.max(most, ...keys.map((key) => point[key] ?? 0)), level ?? 0),
    [points, keys, level],
  );
  const known = useMemo(
    () => points.some((point) => keys.some((key) => typeof point[key] === "number")),
    [points, keys],
  );
  const gaps = useMemo(() => gapsOf(points, keys, axis.range), [points, keys, axis.range]);
  return (
    <section className="card" aria-label={title}>
      <h2>
        {title} <span className="grow" />
        <Readout lines={lines} points={points} format={format} cursor={axis.cursor} />
      </h2>
      <div className="body">
        <div ref={box} className={styles.plot} style={{ height: HEIGHT }}>
          {width > 0 && (
            <Lines
              lines={lines}
              points={points}
              format={format}
              range={axis.range}
              top={known ? axisEnd(largest) : null}
              width={width}
              {...(level !== undefined && { level })}
            />
          )}
          <div
            className={styles.area}
            style={{ top: MARGIN.top, left: AXIS.width, right: MARGIN.right, bottom: AXIS.height }}
          >
            <TimeOverlay {...axis} gaps={gaps} />
          </div>
          {!known && (
            <p className={styles.absent}>
              <span>{absent}</span>
            </p>
          )}
        </div>
      </div>
    </section>
  );
}

type LinesProps = {
  lines: ChartLine[];
  points: Point[];
  format: (value: number | null) => Figure;
  range: Range;
  /** The end of the value axis; null without values. */
  top: number | null;
  width: number;
  level?: number;
};

/** Recharts lines without animation and interaction; redrawn only when the data changes. */
const Lines = memo(function Lines({ lines, points, format, range, top, width, level }: LinesProps) {
  const x = useMemo<[number, number]>(() => [range.from, range.to], [range.from, range.to]);
  const xTicks = useMemo(
    () => Array.from({ length: 6 }, (_, index) => range.from + ((range.to - range.from) * index) / 5),
    [range.from, range.to],
  );
  const y = useMemo<[number, number]>(() => [0, top ?? 1], [top]);
  const yTicks = useMemo(() => (top === null ? [] : [0, top / 2, top]), [top]);
  return (
    <LineChart width={width} height={HEIGHT} data={points} margin={MARGIN} accessibilityLayer={false}>
      <CartesianGrid vertical={false} stroke="var(--line)" />
      <XAxis
        dataKey="t"
        type="number"
        domain={x}
        ticks={xTicks}
        allowDataOverflow
        height={AXIS.height}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={(value: number) => axisTime(value, range.to - range.from)}
      />
      <YAxis
        domain={y}
        ticks={yTicks}
        allowDataOverflow
        width={AXIS.width}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={(value: number) =>
          formatFigure(format(value))
            .replace(/(\.\d*?)0+(?= )/, "$1")
            .replace(/\.(?= )/, "")
        }
      />
      {level !== undefined && <ReferenceLine y={level} stroke="var(--muted)" strokeDasharray="4 4" />}
      {lines.map(({ key, colour }) => (
        <Line
          key={key}
          dataKey={key}
          type="linear"
          stroke={colour}
          strokeWidth={1.4}
          dot={false}
          activeDot={false}
          isAnimationActive={false}
          connectNulls={false}
        />
      ))}
    </LineChart>
  );
});
