import { memo, useMemo, useRef } from "react";
import { CartesianGrid, ErrorBar, ReferenceArea, Scatter, ScatterChart, Tooltip, XAxis, YAxis } from "recharts";
import { useWidth } from "./canvas";
import styles from "./charts.module.css";

const MARGIN = { top: 8, right: 18, bottom: 0, left: 0 };
/** Height of the name above a band. */
const BAND_HEIGHT = 16;
const BANDED = { ...MARGIN, top: MARGIN.top + BAND_HEIGHT };
const Y_WIDTH = 84;
const X_HEIGHT = 20;
const LABEL_HEIGHT = 18;
const TICK = { fontSize: 11, fill: "var(--muted)" };

/** One point. text: what is shown while the pointer is over it; low, high: the ends of its interval. */
export type ChartPoint = { x: number; y: number; low?: number; high?: number; text: string; hollow?: boolean };

/** Points with a common mark. path: the mark's outline around 0, 0. */
export type PointSeries = { key: string; colour: string; path: string; points: ChartPoint[] };

export type PointAxis = {
  low: number;
  high: number;
  ticks: number[];
  format: (value: number) => string;
  label?: string;
};

type Props = {
  label: string;
  height: number;
  series: PointSeries[];
  x: PointAxis;
  y: PointAxis;
  /** Connects all points from left to right. */
  joined?: boolean;
  /** A part of the x axis with a background and a name. */
  band?: { from: number; to: number; name: string } | null;
  /** The text shown without any point. */
  absent: string;
};

/** A scatter chart of marks with intervals, optionally joined by a line. */
export function PointsChart({ label, height, absent, ...plot }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const isEmpty = plot.series.every(({ points }) => points.length === 0);
  return (
    <div ref={box} className={styles.plot} style={{ height }} role="img" aria-label={label}>
      {width > 0 && <Plot {...plot} width={width} height={height} isEmpty={isEmpty} />}
      {isEmpty && (
        <p className={styles.absent}>
          <span>{absent}</span>
        </p>
      )}
    </div>
  );
}

type PlotProps = Omit<Props, "label" | "absent"> & { width: number; isEmpty: boolean };
type Drawn = ChartPoint & { error?: [number, number] };

const Plot = memo(function Plot({ series, x, y, joined = false, band = null, width, height, isEmpty }: PlotProps) {
  const drawn = useMemo(
    () => series.map(({ points, ...one }) => ({ ...one, points: points.map(withError) })),
    [series],
  );
  const line = useMemo(() => series.flatMap(({ points }) => points).toSorted((a, b) => a.x - b.x), [series]);
  return (
    <ScatterChart width={width} height={height} margin={band === null ? MARGIN : BANDED} accessibilityLayer={false}>
      <CartesianGrid vertical={false} stroke="var(--line)" />
      {band !== null && (
        <ReferenceArea
          x1={band.from}
          x2={band.to}
          fill="var(--raised)"
          fillOpacity={1}
          label={{ value: band.name, position: "insideTopLeft", dy: -BAND_HEIGHT - 4, ...TICK }}
        />
      )}
      <XAxis
        type="number"
        dataKey="x"
        domain={[x.low, x.high]}
        ticks={x.ticks}
        interval={0}
        allowDataOverflow
        height={X_HEIGHT + (x.label === undefined ? 0 : LABEL_HEIGHT)}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={x.format}
        {...(x.label !== undefined && { label: { value: x.label, position: "insideBottom", ...TICK } })}
      />
      <YAxis
        type="number"
        dataKey="y"
        domain={[y.low, y.high]}
        ticks={isEmpty ? [] : y.ticks}
        interval={0}
        allowDataOverflow
        width={Y_WIDTH}
        tick={TICK}
        tickLine={false}
        axisLine={false}
        tickFormatter={y.format}
      />
      <Tooltip isAnimationActive={false} cursor={false} content={Tip} />
      {joined && (
        <Scatter
          data={line}
          line={{ stroke: "var(--muted)", strokeWidth: 1.2 }}
          shape={noMark}
          isAnimationActive={false}
        />
      )}
      {drawn.map(({ key, colour, path, points }) => (
        <Scatter
          key={key}
          data={points}
          fill={colour}
          stroke={colour}
          isAnimationActive={false}
          shape={(point: unknown) => <PointMark {...(point as MarkProps)} colour={colour} path={path} />}
        >
          <ErrorBar dataKey="error" direction="y" width={4} stroke={colour} isAnimationActive={false} />
        </Scatter>
      ))}
    </ScatterChart>
  );
});

function withError(point: ChartPoint): Drawn {
  const { y, low = y, high = y } = point;
  return low < high ? { ...point, error: [y - low, high - y] } : point;
}

type MarkProps = { cx?: number; cy?: number; payload?: ChartPoint; colour: string; path: string };

function PointMark({ cx = 0, cy = 0, payload, colour, path }: MarkProps) {
  return (
    <path
      d={path}
      transform={`translate(${cx} ${cy})`}
      fill={payload?.hollow ? "var(--panel)" : colour}
      stroke={colour}
    />
  );
}

const noMark = () => <g />;

type TipProps = { active?: boolean; payload?: readonly { payload?: ChartPoint }[] };

/** The text of the point under the pointer. */
function Tip({ active, payload }: TipProps) {
  const text = payload?.[0]?.payload?.text;
  return active && text !== undefined ? <div className={styles.tip}>{text}</div> : null;
}
