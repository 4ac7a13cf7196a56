import { memo, useMemo, useRef } from "react";
import { Area, AreaChart, CartesianGrid, Line, LineChart, ReferenceLine, XAxis, YAxis } from "recharts";
import { ExportMenu } from "../components/ExportMenu";
import { seriesCsv } from "../lib/csv";
import { type Figure, formatFigure } from "../lib/format";
import { axisTime, clock } from "../lib/time";
import { useWidth } from "./canvas";
import styles from "./charts.module.css";
import { type Cursor, useCursor } from "./cursor";
import type { Point } from "./seriesRing";
import { type Range, type TimeAxis, TimeOverlay } from "./TimeOverlay";
import { timeTicks } from "./timeTicks";

/** dash: of its stroke, `4 3`; solid when absent. */
export type ChartLine = { key: string; name: string; colour: string; dash?: string };

/** Sizes of a chart's plot in pixels; a small one is one of several in a row. */
const LARGE = { height: 138, margin: { top: 8, right: 8, bottom: 0, left: 0 }, axis: { width: 64, height: 20 } };
/** A chart that is shown alone. */
export const TALL = { ...LARGE, height: 240 };
export const SMALL = { height: 78, margin: { top: 6, right: 4, bottom: 0, left: 0 }, axis: { width: 58, height: 16 } };
type Size = typeof LARGE;

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

/** The values that stale lines keep, and their time. */
export type Kept = { timeMs: number; values: Record<string, number | null> };

/** A line's value at a time; at none the one it keeps, else its latest one, unless that is old. */
export function valueAt(points: Point[], key: string, timeMs: number | null, kept: Kept | null = null): number | null {
  if (timeMs === null && kept !== null) return kept.values[key] ?? null;
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

/** The values without the lines' names, which are tooltips; neighbors with the same unit name it once. */
function SmallReadout({ lines, points, format, cursor, kept }: ReadoutProps & { kept: Kept | null }) {
  const timeMs = useCursor(cursor);
  const figures = lines.map(({ key }) => format(valueAt(points, key, timeMs, kept)));
  return (
    <span className={`${styles.smallReadout} ${timeMs === null && kept !== null ? "muted" : ""}`}>
      {lines.map(({ key, name, colour }, place) => {
        const { value = "", unit = "" } = figures[place] ?? {};
        return (
          <span key={key} title={name}>
            <i style={{ background: colour }} />
            <span className="visually-hidden">{name}</span> {value} {unit !== figures[place + 1]?.unit && <u>{unit}</u>}
          </span>
        );
      })}
    </span>
  );
}

export type PlotProps = {
  lines: ChartLine[];
  points: Point[];
  format: (value: number | null) => Figure;
  axis: TimeAxis;
  /** The unit of the values as they are, for exports; format scales it. */
  unit: string;
  /** The reason shown when no line has a value in the range. */
  absent: string;
  /** A reference value, drawn as a dashed line. */
  level?: number;
  /** The end of the value axis; by the largest value when absent. */
  end?: number;
  /** Areas on top of each other instead of lines. */
  isStacked?: boolean;
  /** The lines whose values a small chart's title shows; all when absent. */
  readout?: readonly string[];
};

type ChartProps = PlotProps & { title: string };

/** A line chart over time with the page's crosshair, marks and gaps. */
export function TimeChart({ title, ...plot }: ChartProps) {
  return (
    <section className="card" aria-label={title}>
      <h2>
        {title} <span className="grow" />
        <Readout {...plot} cursor={plot.axis.cursor} />
        <ExportMenu
          name={title}
          range={() => plot.axis.range}
          csv={() => seriesCsv(plot.points, plot.lines, plot.unit)}
        />
      </h2>
      <div className="body">
        <Plot {...plot} size={LARGE} />
      </div>
    </section>
  );
}

/** kept: what it shows while it is stale. isDrawn: whether its lines are drawn yet; its box has its size before. */
type SmallProps = ChartProps & { kept: Kept | null; isDrawn: boolean; isOpen: boolean; onOpen: () => void };

/** A chart of a row of small ones, which share the crosshair and the time range. A click on it opens the large one. */
export function SmallTimeChart({ title, kept, isOpen, onOpen, ...plot }: SmallProps) {
  return (
    <section className={styles.small} aria-label={title} data-open={isOpen || undefined}>
      <h2>
        <button type="button" aria-expanded={isOpen} onClick={onOpen} title="Show this chart large">
          {title}
        </button>{" "}
        <SmallReadout
          {...plot}
          lines={plot.lines.filter(({ key }) => plot.readout?.includes(key) ?? true)}
          kept={kept}
          cursor={plot.axis.cursor}
        />
      </h2>
      <Plot {...plot} size={SMALL} onClick={onOpen} {...(kept !== null && { keptMs: kept.timeMs })} />
    </section>
  );
}

/** How high a chart draws at a point: each line, or all areas together. */
export function heights(keys: string[], point: Point, isStacked: boolean): number[] {
  const values = keys.map((key) => point[key] ?? 0);
  return isStacked ? [values.reduce((sum, value) => sum + value, 0)] : values;
}

/** keptMs: the time of the values that stale lines keep. */
type PlotOptions = { size: Size; isDrawn?: boolean; keptMs?: number; onClick?: () => void };

/** The lines of a chart with its axes, without a title. */
export function Plot({
  lines,
  points,
  format,
  axis,
  absent,
  level,
  end,
  isStacked = false,
  size,
  isDrawn = true,
  keptMs,
  onClick,
}: Omit<PlotProps, "unit"> & PlotOptions) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const keys = useMemo(() => lines.map(({ key }) => key), [lines]);
  const largest = useMemo(
    () => points.reduce((most, point) => Math.max(most, ...heights(keys, point, isStacked)), level ?? 0),
    [points, keys, level, isStacked],
  );
  const known = useMemo(
    () => points.some((point) => keys.some((key) => typeof point[key] === "number")),
    [points, keys],
  );
  const gaps = useMemo(() => gapsOf(points, keys, axis.range), [points, keys, axis.range]);
  const { margin } = size;
  return (
    <div ref={box} className={styles.plot} style={{ height: size.height }}>
      {isDrawn && width > 0 && (
        <Lines
          lines={lines}
          points={points}
          format={format}
          range={axis.range}
          top={known ? (end ?? axisEnd(largest)) : null}
          width={width}
          size={size}
          isStacked={isStacked}
          {...(level !== undefined && { level })}
        />
      )}
      <div
        className={styles.area}
        style={{ top: margin.top, left: size.axis.width, right: margin.right, bottom: size.axis.height }}
      >
        <TimeOverlay {...axis} gaps={gaps} {...(onClick && { onClick })} />
      </div>
      {keptMs !== undefined && (
        <time className={styles.kept} style={{ top: margin.top, right: margin.right }} title="Time of the gray values">
          {clock(keptMs)}
        </time>
      )}
      {!known && (
        <p className={styles.absent}>
          <span>{absent}</span>
        </p>
      )}
    </div>
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
  size: Size;
  isStacked: boolean;
  level?: number;
};

/** A tick of the value axis: `2.5 Gbit/s`, in a small chart 0 without a unit. */
function tickText({ value, unit }: Figure, isSmall: boolean): string {
  const number = value.replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
  return formatFigure({ value: number, unit: isSmall && value === "0" ? "" : unit });
}

/** Recharts lines without animation and interaction; redrawn only when the data changes. */
const Lines = memo(function Lines({ lines, points, format, range, top, width, size, isStacked, level }: LinesProps) {
  const isSmall = size === SMALL;
  const x = useMemo<[number, number]>(() => [range.from, range.to], [range.from, range.to]);
  const xTicks = useMemo(() => {
    // half a label from the ends
    const edge = (range.to - range.from) * (isSmall ? 0.15 : 0.04);
    return timeTicks(range.from + edge, range.to - edge, isSmall ? 2 : 6);
  }, [range.from, range.to, isSmall]);
  const y = useMemo<[number, number]>(() => [0, top ?? 1], [top]);
  const yTicks = useMemo(() => {
    if (top === null) return [];
    return isSmall ? [0, top] : [0, top / 2, top];
  }, [top, isSmall]);
  const Chart = isStacked ? AreaChart : LineChart;
  return (
    <Chart width={width} height={size.height} data={points} margin={size.margin} accessibilityLayer={false}>
      <CartesianGrid vertical={false} stroke="var(--line)" />
      <XAxis
        dataKey="t"
        type="number"
        domain={x}
        ticks={xTicks}
        allowDataOverflow
        height={size.axis.height}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={(value: number) => axisTime(value, range.to - range.from)}
      />
      <YAxis
        domain={y}
        ticks={yTicks}
        allowDataOverflow
        width={size.axis.width}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={(value: number) => tickText(format(value), isSmall)}
      />
      {level !== undefined && <ReferenceLine y={level} stroke="var(--muted)" strokeDasharray="4 4" />}
      {lines.map(({ key, colour, dash }) =>
        isStacked ? (
          <Area
            key={key}
            dataKey={key}
            stackId="all"
            type="linear"
            stroke="none"
            fill={colour}
            fillOpacity={0.85}
            dot={false}
            activeDot={false}
            isAnimationActive={false}
            connectNulls={false}
          />
        ) : (
          <Line
            key={key}
            dataKey={key}
            type="linear"
            stroke={colour}
            strokeWidth={1.4}
            strokeDasharray={dash ?? "0"}
            dot={false}
            activeDot={false}
            isAnimationActive={false}
            connectNulls={false}
          />
        ),
      )}
    </Chart>
  );
});
