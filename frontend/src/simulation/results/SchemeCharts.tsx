import { memo, useId, useMemo, useRef } from "react";
import { Bar, BarChart, CartesianGrid, ErrorBar, ReferenceDot, XAxis, YAxis } from "recharts";
import { useWidth } from "../../charts/canvas";
import chartStyles from "../../charts/charts.module.css";
import type { CellSummary } from "../types";
import {
  type Bar as BarRow,
  barOf,
  highOf,
  PARTS,
  responseEnd,
  responseWords,
  systemEnd,
  systemWords,
  ticksTo,
} from "./charted";
import { fillOf, PartFills } from "./PartFill";

const ROW = 26;
const AXIS = { width: 86, height: 20 };
const MARGIN = { top: 2, right: 14, bottom: 0, left: 0 };
const TICK = { fontSize: 11, fill: "var(--muted)" };
const NAME = { fontSize: 12, fill: "var(--text)" };

type Props = { cells: CellSummary[]; of: string };

/** Mean response time of each scheme with its interval, as in figures 4a, 4c, 5a and 5c. */
export function ResponseChart({ cells, of }: Props) {
  const bars = useBars(cells);
  const end = useMemo(() => responseEnd(bars), [bars]);
  return (
    <Plot label={`Response time, ${of}: ${responseWords(cells)}`} rows={bars.length}>
      {(width, height) => <Responses bars={bars} end={end} width={width} height={height} />}
    </Plot>
  );
}

/** The breakdown of system time of each scheme, as in figures 4b, 4d, 5b and 5d. */
export function SystemChart({ cells, of }: Props) {
  const bars = useBars(cells);
  const end = useMemo(() => systemEnd(bars), [bars]);
  return (
    <Plot label={`System time, ${of}: ${systemWords(cells)}`} rows={bars.length}>
      {(width, height) => <Systems bars={bars} end={end} width={width} height={height} />}
    </Plot>
  );
}

const useBars = (cells: CellSummary[]) => useMemo(() => cells.map(barOf), [cells]);

type PlotProps = { label: string; rows: number; children: (width: number, height: number) => React.ReactNode };

function Plot({ label, rows, children }: PlotProps) {
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const height = rows * ROW + AXIS.height + MARGIN.top;
  return (
    <div ref={box} className={chartStyles.plot} style={{ height }} role="img" aria-label={label}>
      {width > 0 && children(width, height)}
    </div>
  );
}

type ChartProps = { bars: BarRow[]; end: number; width: number; height: number };

/** Schemes from top to bottom, values from left to right; without animation and interaction. */
const frame = ({ bars, width, height }: ChartProps) => ({
  data: bars,
  width,
  height,
  layout: "vertical" as const,
  margin: MARGIN,
  barCategoryGap: 5,
  accessibilityLayer: false,
});

function axes(end: number) {
  return [
    <CartesianGrid key="grid" horizontal={false} stroke="var(--line)" />,
    <XAxis
      key="x"
      type="number"
      domain={[0, end]}
      allowDataOverflow
      ticks={ticksTo(end)}
      height={AXIS.height}
      tick={TICK}
      tickLine={false}
      axisLine={false}
      tickFormatter={(value: number) => String(Number(value.toPrecision(3)))}
    />,
    <YAxis
      key="y"
      type="category"
      dataKey="scheme"
      interval={0}
      width={AXIS.width}
      tick={NAME}
      tickLine={false}
      axisLine={false}
    />,
  ];
}

const Responses = memo(function Responses(props: ChartProps) {
  const { bars, end } = props;
  const rows = useMemo(
    () =>
      bars.map((bar) => ({
        ...bar,
        interval: [bar.interval[0], Math.min(bar.interval[1], end - bar.response)],
        fill: bar.reordered ? "var(--accent)" : "var(--user)",
      })),
    [bars, end],
  );
  return (
    <BarChart {...frame(props)} data={rows}>
      {axes(end)}
      <Bar dataKey="response" isAnimationActive={false}>
        <ErrorBar
          dataKey="interval"
          direction="x"
          width={8}
          strokeWidth={1.5}
          stroke="var(--text)"
          isAnimationActive={false}
        />
      </Bar>
      {bars
        .filter((bar) => highOf(bar) > end)
        .map(({ scheme }) => (
          <ReferenceDot key={scheme} x={end} y={scheme} shape={Beyond} />
        ))}
    </BarChart>
  );
});

/** An arrow at the end of an interval that goes on beyond the axis. */
function Beyond({ cx = 0, cy = 0 }: { cx?: number; cy?: number }) {
  return <path d={`M${cx} ${cy - 5}l8 5l-8 5z`} style={{ fill: "var(--text)" }} />;
}

const Systems = memo(function Systems(props: ChartProps) {
  const id = useId();
  return (
    <BarChart {...frame(props)}>
      <PartFills id={id} />
      {axes(props.end)}
      {PARTS.map((part) => (
        <Bar
          key={part}
          dataKey={part}
          stackId="system"
          fill={fillOf(id, part)}
          stroke="var(--panel)"
          strokeWidth={0.5}
          isAnimationActive={false}
        />
      ))}
    </BarChart>
  );
});
