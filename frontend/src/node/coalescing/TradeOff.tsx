import { NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type KeyboardEvent, type PointerEvent, useEffect, useId, useMemo, useRef, useState } from "react";
import { errorMessage } from "../../api/client";
import { coloursOf, prepareCanvas, useColourScheme, useWidth } from "../../charts/canvas";
import { ExportMenu } from "../../components/ExportMenu";
import { Segments } from "../../components/Segments";
import { useTyped } from "../../components/useTyped";
import { type Errors, readField } from "../../forms/values";
import { CIVIDIS_GRADIENT } from "../../lib/cividis";
import { duration, formatCount, formatFigure, micros, packetRate, perSecond, significant } from "../../lib/format";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { coalescingQuery } from "../queries";
import { TRAFFIC_SCHEMAS } from "../search";
import styles from "./coalescing.module.css";
import { netdevsOf, selectedNetdev } from "./netdevSelection";
import { type Coalescing, pointText, type Surface } from "./nicParams";
import { SurfaceTable } from "./SurfaceTable";
import {
  anchoredSurface,
  type Cell,
  type Colour,
  cellOf,
  describeCell,
  describePoint,
  figureOf,
  latencyBoundUs,
  modelError,
  scaleOf,
} from "./surface";
import { surfaceCsv } from "./surfaceCsv";
import { cellSize, chartHeight, PLOT_LEFT, PLOT_TOP, paintSurface } from "./surfacePainter";

const COLOURS = [
  { value: "interrupts", label: "interrupts", title: "Interrupts/s of all receive queues" },
  { value: "latency", label: "added latency", title: "Latency added per packet, p99" },
] as const;

/** Interrupt coalescing of a network device: predicted interrupts/s and added latency for other values. */
export function TradeOff({ view }: { view: NodeView }) {
  const netdev = selectedNetdev(view.inventory, view.search);
  if (netdev === null) return <p className={nodeStyles.note}>This node has no network device.</p>;
  return <Card view={view} netdev={netdev.name} height={chartHeight(netdev.params)} />;
}

function Card({ view, netdev, height }: { view: NodeView; netdev: string; height: number }) {
  const { search, navigate, inventory } = view;
  const { pps, frame } = search;
  const query = useQuery(coalescingQuery(view.node.id, netdev, { pps, frame }));
  const colour: Colour = search.colour ?? "interrupts";
  const table = search.table === "coalescing";
  const { data } = query;
  const surface = useMemo(() => (data === undefined ? null : anchoredSurface(data)), [data]);
  const selectNetdev = (name: string) =>
    navigate({ nic: name, point: undefined, ...(search.sel?.startsWith("nic:") && { sel: `nic:${name}` }) });
  const select = (cell: Cell) => {
    const usecs = surface?.rx_usecs[cell.column];
    if (surface === null || usecs === undefined) return;
    navigate({ sel: `nic:${netdev}`, point: pointText(usecs, surface.rx_frames[cell.row]) });
  };
  return (
    <section className="card" aria-labelledby="coalescing-heading" aria-busy={query.isPlaceholderData}>
      <h2 className={styles.head}>
        <span id="coalescing-heading">Interrupt coalescing</span>
        <NativeSelect
          aria-label="Network device"
          value={netdev}
          data={netdevsOf(inventory).map(({ name, driver }) => ({
            value: name,
            label: driver === null ? name : `${name} · ${driver}`,
          }))}
          onChange={(event) => selectNetdev(event.currentTarget.value)}
        />
        <Segments
          label="Colour of the trade-off"
          value={colour}
          options={COLOURS}
          onChange={(value) => navigate({ colour: value === "latency" ? value : undefined })}
        />
        <span className="grow" />
        {!table && <Legend surface={surface} colour={colour} />}
        <ExportMenu
          name={`${view.node.name} ${netdev} coalescing`}
          csv={surface === null ? null : () => surfaceCsv(surface)}
        />
        <button
          type="button"
          className="link"
          aria-pressed={table}
          onClick={() => navigate({ table: table ? undefined : "coalescing" })}
        >
          {table ? "as chart" : "as table"}
        </button>
      </h2>
      <div className="body">
        {data === undefined || surface === null ? (
          <div className={`hatched ${styles.nothing}`} style={{ height }}>
            <p role={query.isError ? "alert" : undefined}>
              {query.isError ? errorMessage(query.error) : (data?.why_not ?? "Computing the trade-off…")}
            </p>
          </div>
        ) : table ? (
          <SurfaceTable
            coalescing={data}
            surface={surface}
            allowedUs={latencyBoundUs(data, search.bound)}
            onSelect={select}
          />
        ) : (
          <SurfaceChart
            view={view}
            coalescing={data}
            surface={surface}
            colour={colour}
            height={height}
            onSelect={select}
          />
        )}
        <AssumedTraffic key={netdev} view={view} coalescing={data} />
        <Notes coalescing={data} view={view} netdev={netdev} />
      </div>
    </section>
  );
}

/** The ends of the color scale, unknown while the surface is. */
function Legend({ surface, colour }: { surface: Surface | null; colour: Colour }) {
  const [least, most] = (surface === null ? [null, null] : scaleOf(surface, colour)).map((end) =>
    end === null ? "–" : formatFigure(figureOf(end, colour)),
  );
  return (
    <small className={nodeStyles.legend}>
      predicted: {least} <i style={{ background: CIVIDIS_GRADIENT }} /> {most}, logarithmic
    </small>
  );
}

type SurfaceChartProps = {
  view: NodeView;
  coalescing: Coalescing;
  surface: Surface;
  colour: Colour;
  height: number;
  onSelect: (cell: Cell) => void;
};

const MOVES: Record<string, [down: number, across: number]> = {
  ArrowDown: [1, 0],
  ArrowUp: [-1, 0],
  ArrowRight: [0, 1],
  ArrowLeft: [0, -1],
};

function SurfaceChart({ view, coalescing, surface, colour, height, onSelect }: SurfaceChartProps) {
  const box = useRef<HTMLDivElement>(null);
  const canvas = useRef<HTMLCanvasElement>(null);
  const tip = useRef<HTMLDivElement>(null);
  const help = useId();
  const width = useWidth(box);
  const scheme = useColourScheme();
  const [at, setAt] = useState<Cell | null>(null);
  const { point } = view.search;
  const allowedUs = latencyBoundUs(coalescing, view.search.bound);
  const currentCell = cellOf(surface, coalescing.current.rx_usecs, coalescing.current.rx_frames);
  const selected = useMemo(() => {
    const [usecs, frames] = point?.split("x").map(Number) ?? [];
    return usecs === undefined ? null : cellOf(surface, usecs, frames ?? null);
  }, [point, surface]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: a new colour scheme has new colours.
  useEffect(() => {
    if (canvas.current === null || width === 0) return;
    const context = prepareCanvas(canvas.current, width, height);
    if (context === null) return;
    paintSurface(context, coloursOf(canvas.current), { coalescing, surface, colour, allowedUs, width, selected, at });
  }, [coalescing, surface, colour, allowedUs, width, height, selected, at, scheme]);

  const inside = ({ row, column }: Cell) =>
    row >= 0 && column >= 0 && row < surface.predicted.length && column < surface.rx_usecs.length;
  const cellAt = (event: PointerEvent<HTMLDivElement>): Cell | null => {
    const bounds = event.currentTarget.getBoundingClientRect();
    const { w, h } = cellSize(surface, width);
    const cell = {
      row: Math.floor((event.clientY - bounds.top - PLOT_TOP) / h),
      column: Math.floor((event.clientX - bounds.left - PLOT_LEFT) / w),
    };
    return inside(cell) ? cell : null;
  };
  const measured = (cell: Cell) =>
    coalescing.points.filter(({ rx_usecs, rx_frames }) => {
      const place = cellOf(surface, rx_usecs, rx_frames);
      return place?.row === cell.row && place.column === cell.column;
    });
  const hover = (event: PointerEvent<HTMLDivElement> | null) => {
    if (tip.current === null) return;
    const cell = event === null ? null : cellAt(event);
    tip.current.style.display = cell === null ? "none" : "block";
    if (event === null || cell === null) return;
    const [first, second] = tip.current.children;
    if (first) first.textContent = describeCell(surface, cell, allowedUs);
    if (second) second.textContent = measured(cell).map(describePoint).join(" ");
    tip.current.style.left = `${Math.min(event.clientX + 14, innerWidth - tip.current.offsetWidth - 8)}px`;
    tip.current.style.top = `${event.clientY + 14}px`;
  };
  const onKeyDown = (event: KeyboardEvent<HTMLDivElement>) => {
    if (event.key === "Enter" && at !== null) {
      event.preventDefault();
      return onSelect(at);
    }
    const [down, across] = MOVES[event.key] ?? [0, 0];
    if (down === 0 && across === 0) return;
    event.preventDefault();
    const from = at ?? selected ?? currentCell;
    const next = from === null ? { row: 0, column: 0 } : { row: from.row + down, column: from.column + across };
    if (inside(next)) setAt(next);
  };
  return (
    <>
      <p id={help} className="visually-hidden">
        {formatCount(surface.rx_usecs.length, "value")} of rx-usecs
        {surface.rx_frames.length > 0 && ` by ${formatCount(surface.rx_frames.length, "value")} of rx-frames`}. Arrow
        keys move; Enter selects the values.
      </p>
      <div
        ref={box}
        className={styles.chart}
        style={{ height }}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: role application is a widget.
        tabIndex={0}
        role="application"
        aria-label={`Trade-off of ${coalescing.netdev}`}
        aria-describedby={help}
        onKeyDown={onKeyDown}
        onBlur={() => setAt(null)}
        onPointerMove={hover}
        onPointerLeave={() => hover(null)}
        onPointerUp={(event) => {
          const cell = cellAt(event);
          if (cell !== null && event.button === 0) onSelect(cell);
        }}
      >
        <canvas ref={canvas} />
      </div>
      <div ref={tip} className={nodeStyles.tip}>
        <b />
        <span />
      </div>
      <div className="visually-hidden" aria-live="polite">
        {at === null ? "" : [describeCell(surface, at, allowedUs), ...measured(at).map(describePoint)].join(" ")}
      </div>
    </>
  );
}

type Name = keyof typeof TRAFFIC_SCHEMAS;

/** Fields for assumed traffic and the latency bound; empty: the measured traffic and the policies' bound. */
function AssumedTraffic({ view, coalescing }: { view: NodeView; coalescing: Coalescing | undefined }) {
  const traffic = coalescing?.traffic ?? null;
  const allowed = coalescing === undefined ? null : latencyBoundUs(coalescing, undefined);
  const measured = traffic !== null && traffic.measured_s !== null;
  const field = (name: Name, label: string, placeholder: string) => (
    <TrafficField view={view} name={name} label={label} placeholder={placeholder} />
  );
  return (
    <div className={styles.assumed}>
      {field("pps", "Assumed packets/s", measured ? `measured ${significant(traffic.packets_per_s)}` : "measured")}
      {field("frame", "Assumed bytes/frame", measured ? `measured ${significant(traffic.frame_bytes)}` : "measured")}
      {field("bound", "Latency bound, µs", allowed === null ? "no policy bound" : `policy ${allowed}`)}
    </div>
  );
}

type FieldProps = { view: NodeView; name: Name; label: string; placeholder: string };

function TrafficField({ view, name, label, placeholder }: FieldProps) {
  const errorOf = (text: string) => {
    const errors: Errors = {};
    if (text.trim() !== "") readField(TRAFFIC_SCHEMAS[name], name, { [name]: text }, errors);
    return errors[name];
  };
  const { typed, type } = useTyped(
    String(view.search[name] ?? ""),
    (text) => {
      if (errorOf(text) === undefined) view.navigate({ [name]: text === "" ? undefined : Number(text) });
    },
    (text) => (text.trim() === "" || errorOf(text) !== undefined ? text.trim() : String(Number(text))),
  );
  return (
    <TextInput
      label={label}
      placeholder={placeholder}
      inputMode="numeric"
      value={typed}
      error={errorOf(typed)}
      onChange={(event) => type(event.currentTarget.value)}
    />
  );
}

function trafficText(coalescing: Coalescing): string {
  const { traffic, current } = coalescing;
  if (traffic === null) return "No received traffic to measure.";
  const origin = traffic.measured_s === null ? "Assumed" : `Mean of the last ${duration(traffic.measured_s)}`;
  const gap = traffic.gap_us === null ? "" : `, ${formatFigure(micros(traffic.gap_us))} on the wire per frame`;
  const rate = current.interrupts_per_s;
  const isShown = modelError(coalescing) === null && !current.adaptive;
  return [
    `${origin}: ${formatFigure(packetRate(traffic.packets_per_s))} of ${formatCount(Math.round(traffic.frame_bytes), "byte")}${gap};`,
    `${formatFigure(packetRate(traffic.packets_per_s_a_queue))} on the busiest queue.`,
    rate === null ? "" : `Interrupts now: ${formatFigure(perSecond(rate))} measured`,
    rate === null
      ? ""
      : current.predicted === null
        ? "."
        : `, ${formatFigure(perSecond(current.predicted.interrupts_per_s))} predicted${isShown ? ", as in the cell “now”" : ""}.`,
  ]
    .join(" ")
    .replace(" ,", ",")
    .replace(" .", ".");
}

/** States that the chart shows the model's interrupts scaled to the measured ones. */
function errorText(error: number): string {
  const [factor, few] = error > 1 ? [error, "few"] : [1 / error, "many"];
  return `The model predicts ${factor.toFixed(1)}× too ${few}: the interrupts shown are scaled to the measurement.`;
}

/** The traffic, the timer model and the measured points behind the trade-off. */
function Notes({ coalescing, view, netdev }: { coalescing: Coalescing | undefined; view: NodeView; netdev: string }) {
  const correlation = coalescing?.rank_correlation ?? null;
  const points = coalescing?.points.length ?? 0;
  const error = coalescing === undefined ? null : modelError(coalescing);
  return (
    <div className={styles.notes}>
      {coalescing !== undefined && (
        <>
          <p>
            {trafficText(coalescing)} {error !== null && <b>{errorText(error)}</b>}
          </p>
          <p>
            <b>{coalescing.timer === null ? "Timer unknown" : `Timer: ${coalescing.timer}`}.</b> {coalescing.timer_why}
            {coalescing.current.adaptive && " adaptive-rx is on: the driver adjusts these values itself."}
            {coalescing.current.adaptive_mode &&
              ` rx-usecs ${coalescing.current.rx_usecs} selects a mode of ${coalescing.driver} that adapts the interval.`}
          </p>
          <p>
            {points === 0
              ? "No measured points yet: a value must stay set under traffic long enough."
              : `${formatCount(points, "measured point")} (${points > 1 ? "circles" : "circle"}).`}{" "}
            {correlation !== null && `Rank correlation of model and measurement: ${correlation.toFixed(2)}. `}
            {coalescing.bounds
              .map(({ name, max_added_us }) => `Policy ${name}: bound ${formatFigure(micros(max_added_us))}.`)
              .join(" ")}{" "}
            {coalescing.surface !== null &&
              (view.search.bound !== undefined || coalescing.bounds.length > 0) &&
              "Hatched: the longest wait exceeds the bound."}
          </p>
        </>
      )}
      <p>
        <button type="button" className="link" onClick={() => view.navigate({ sel: `nic:${netdev}` })}>
          all parameters of {netdev}
        </button>
      </p>
    </div>
  );
}
