import { CloseButton } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import { errorMessage } from "../../api/client";
import { useCursor } from "../../charts/cursor";
import { type Point, pointsOf } from "../../charts/seriesRing";
import { type ChartLine, type Kept, Plot, type PlotProps, TALL, valueAt } from "../../charts/TimeChart";
import { ExportMenu } from "../../components/ExportMenu";
import { Segments } from "../../components/Segments";
import { seriesCsv } from "../../lib/csv";
import { formatFigure } from "../../lib/format";
import type { ChartName } from "../../lib/metrics";
import type { NodeView } from "../nodeView";
import { partsQuery } from "../queries";
import { keptOf } from "../time/useKept";
import { missingLine, nicsOf, PARTS, partLines } from "./breakdown";
import { chartOf } from "./chartList";
import styles from "./timeseries.module.css";
import { usePoints } from "./usePoints";

type Props = { name: ChartName; view: NodeView; pastPoints: Point[] };

const NONE: Point[] = [];
const WHOSE: { value: ChartName; label: string }[] = [
  { value: "distance", label: "protocol work" },
  { value: "polling", label: "polling" },
];
/** Whose distance from the process the charts by distance show. */
const OF: Partial<Record<ChartName, string>> = {
  distance: "TCP payload by the CPU of the protocol work",
  polling: "TCP payload by the CPU that polls the queue",
};

/** One chart large: a line for each NIC and direction, interrupt or CPU, or for each of its metrics. */
export function LargeChart({ name, view, pastPoints }: Props) {
  const { inventory, navigate, search } = view;
  const { points, axis, kept } = usePoints({ view, pastPoints }, 0);
  const whole = useMemo(() => chartOf(name, false), [name]);
  const nics = useMemo(() => nicsOf(inventory), [inventory]);
  const cpu = search.sel?.startsWith("cpu:") ? Number(search.sel.slice(4)) : null;
  const parts = useQuery(partsQuery(view.node.id, name, view.past, view.window, { nics, cpu }));
  const ofParts = useMemo(() => (parts.data === undefined ? NONE : pointsOf(parts.data)), [parts.data]);
  const lines = useMemo(
    () => (parts.data === undefined ? [] : partLines(name, parts.data, inventory)),
    [name, parts.data, inventory],
  );
  const isParts = name in PARTS;
  const absent = parts.isError ? errorMessage(parts.error) : parts.isPending ? "Loading…" : whole.absent;
  const shown = isParts ? { ...whole, absent, lines, points: ofParts } : { ...whole, points };
  const missing = parts.data === undefined ? null : missingLine(name, lines, search.sel);
  const keptValues = isParts && kept !== null ? keptOf(ofParts) : kept;
  const title = name === "softirq" ? "Softirq" : whole.title;
  const frame = useRef<HTMLElement>(null);
  useEffect(() => {
    frame.current?.scrollIntoView({ block: "nearest" }); // which returns a promise in some browsers
  }, []);
  return (
    <section ref={frame} className={`card ${styles.large}`} aria-label={`${title}, large`}>
      <h2>
        {title} <small>{isParts ? `one line per ${PARTS[name]?.of}` : (OF[name] ?? "all its metrics")}</small>
        <span className="grow" />
        {name in OF && (
          <Segments
            label="Which CPU's distance from the process"
            value={name}
            options={WHOSE}
            onChange={(chart) => navigate({ chart })}
          />
        )}
        <ExportMenu
          name={`${view.node.name} ${title}`}
          range={() => axis.range}
          csv={() => seriesCsv(shown.points, shown.lines, shown.unit)}
        />
        <CloseButton
          size="sm"
          aria-label={`Close ${title}`}
          title="Close"
          onClick={() => navigate({ chart: undefined })}
        />
      </h2>
      <div className="body">
        <Plot {...shown} axis={axis} size={TALL} {...(kept !== null && { keptMs: kept.timeMs })} />
        <Legend {...shown} axis={axis} view={view} kept={keptValues} />
        {missing !== null && (
          <p className={styles.missing} role="status">
            <i className="hatched" /> {missing}
          </p>
        )}
      </div>
    </section>
  );
}

/** The lines' values under the crosshair, else the latest; a click on a name selects the object. */
function Legend({
  lines,
  points,
  format,
  axis,
  view,
  kept,
}: Omit<PlotProps, "lines" | "unit"> & {
  lines: (ChartLine & { sel?: string })[];
  view: NodeView;
  kept: Kept | null;
}) {
  const timeMs = useCursor(axis.cursor);
  return (
    <ul className={`${styles.legend} ${timeMs === null && kept !== null ? "muted" : ""}`}>
      {lines.map((line) => (
        <li key={line.key} data-selected={(line.sel !== undefined && line.sel === view.search.sel) || undefined}>
          <svg width="16" height="8" aria-hidden="true">
            <path d="M0 4H16" stroke={line.colour} strokeWidth="2" strokeDasharray={line.dash ?? "0"} />
          </svg>
          {line.sel !== undefined ? (
            <button type="button" className="link" onClick={() => view.navigate({ sel: line.sel })} title={line.name}>
              {line.name}
            </button>
          ) : (
            <span>{line.name}</span>
          )}
          <b>{formatFigure(format(valueAt(points, line.key, timeMs, kept)))}</b>
        </li>
      ))}
    </ul>
  );
}
