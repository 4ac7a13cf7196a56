import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { errorMessage } from "../api/client";
import { METRICS } from "../api/metrics";
import { Cursor } from "../charts/cursor";
import { Plot, SMALL } from "../charts/TimeChart";
import { InlineSelect } from "../components/InlineSelect";
import { RangePicker } from "../components/RangePicker";
import { Segments } from "../components/Segments";
import { formatOf } from "../lib/metrics";
import { clock, dateTime, zoneName } from "../lib/time";
import { COLOURINGS } from "./colourings";
import styles from "./fleetTime.module.css";
import { endOf, fleetSeriesQuery } from "./past";
import { HOUR_MS, MINUTE_MS, type Moment, momentOf, momentsOf, type Range, rangeOf, widthOf } from "./pastTime";
import { COMPARISONS, type FleetSearch } from "./search";
import { ViewsMenu } from "./ViewsMenu";

const SPANS = { "1 h": HOUR_MS, "24 h": 24 * HOUR_MS, "7 d": 7 * 24 * HOUR_MS } as const;
const CHOICES = ["live", ...Object.keys(SPANS)] as ("live" | keyof typeof SPANS)[];
const COMPARISON_NAMES = { "1h": "an hour before", "1d": "a day before", "1w": "a week before" } as const;
const TICK_MS = 15_000;

type SetSearch = (part: Partial<FleetSearch>) => void;

/** The time, read again every quarter of a minute while it matters. */
function useNow(isNeeded: boolean): number {
  const [nowMs, setNow] = useState(Date.now);
  useEffect(() => {
    if (!isNeeded) return;
    setNow(Date.now());
    const timer = setInterval(() => setNow(Date.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [isNeeded]);
  return nowMs;
}

/** The past minute or hour that the page shows; null while it follows the present. */
export function useMoment(search: FleetSearch): Moment | null {
  const nowMs = useNow(rangeOf(search) !== null || search.compare !== undefined);
  const moment = momentOf(search, nowMs);
  const [start, resolution] = [moment?.start, moment?.resolution];
  return useMemo(
    () => (start === undefined || resolution === undefined ? null : { start, resolution }),
    [start, resolution],
  );
}

type Props = { moment: Moment | null; isLoading: boolean };

/** The page's time: live, or a past range with a scrubber, and the comparison. */
export function FleetTime({ moment, isLoading }: Props) {
  const search = useSearch({ from: "/shell/fleet" });
  const navigate = useNavigate({ from: "/fleet" });
  const set: SetSearch = (part) => void navigate({ search: (before) => ({ ...before, ...part }), replace: true });
  const range = rangeOf(search);
  const nowMs = useNow(range !== null);
  return (
    <>
      <div className={styles.timebar}>
        <Segments
          label="Time"
          value={moment === null || (range === null && search.at === undefined) ? "live" : null}
          options={CHOICES.map((choice) => ({ value: choice, label: choice === "live" ? "● Live" : choice }))}
          onChange={(choice) => {
            const to = Date.now();
            const ends = choice === "live" ? { from: undefined, to: undefined } : { from: to - SPANS[choice], to };
            set({ ...ends, at: undefined });
          }}
        />
        <RangePicker
          past={range}
          proposed={() => ({ from: Date.now() - HOUR_MS, to: Date.now() })}
          onChange={(ends) => set({ ...ends, at: undefined })}
        />
        <InlineSelect
          label="compare with"
          value={search.compare ?? ""}
          data={[
            { value: "", label: "nothing" },
            ...COMPARISONS.map((one) => ({ value: one, label: COMPARISON_NAMES[one] })),
          ]}
          onChange={(event) => set({ compare: COMPARISONS.find((one) => one === event.currentTarget.value) })}
        />
        {moment !== null && <Means moment={moment} isLoading={isLoading} />}
        <span className="grow" />
        <ViewsMenu search={search} onChoose={(chosen) => void navigate({ search: chosen })} />
      </div>
      {range !== null && moment !== null && <Scrubber {...{ range, moment, nowMs, set }} color={search.color} />}
    </>
  );
}

/** Which minute or hour the figures are of. */
function Means({ moment, isLoading }: { moment: Moment; isLoading: boolean }) {
  return (
    <span className={styles.means} aria-live="polite" aria-busy={isLoading}>
      <b>
        {dateTime(moment.start).slice(0, -3)} to {clock(endOf(moment)).slice(0, -3)}
      </b>{" "}
      <span className="muted">
        {zoneName(moment.start)} ·{" "}
        {isLoading ? "loading" : moment.resolution === "minute" ? "means of a minute" : "means of an hour"}
      </span>
    </span>
  );
}

type ScrubberProps = { range: Range; moment: Moment; nowMs: number; color: FleetSearch["color"]; set: SetSearch };

/** The whole fleet over the range, by the map's figure, and the shown moment in it, which it moves. */
function Scrubber({ range, moment, nowMs, color = "softirq", set }: ScrubberProps) {
  const [cursor] = useState(() => new Cursor());
  const series = useQuery(fleetSeriesQuery(range));
  const { column } = COLOURINGS[color];
  const { label, short, unit } = METRICS[column];
  const { first, last } = momentsOf(range, nowMs);
  const width = widthOf(moment);
  const ends = useMemo(() => ({ from: first, to: Math.max(last, first + 1) }), [first, last]);
  const { data } = series;
  const points = useMemo(
    () => data?.times_ms.map((t, at) => ({ t, value: data.values[column]?.[at] ?? null })) ?? [],
    [data, column],
  );
  const lines = useMemo(() => [{ key: "value", name: short, colour: "var(--accent)" }], [short]);
  const axis = useMemo(
    () => ({
      range: ends,
      marks: [],
      cursor,
      onZoom: ({ from, to }: Range) => set({ from, to: Math.max(to, from + MINUTE_MS), at: undefined }),
      onHold: () => undefined,
    }),
    [ends, cursor, set],
  );
  const move = (at: number) => set({ at: Math.max(first, Math.min(last, Math.floor(at / width) * width)) });
  const isSampled = data !== undefined && data.step_ms > width * 1.01;
  return (
    <section className={`card ${styles.scrubber}`} aria-label="The fleet over time">
      <h2>
        {label} <small>{unit === "1/s" ? "sum of all nodes" : "largest of all nodes"}</small>
        <span className="grow" />
        <small className={styles.hint}>
          {isSampled &&
            `a ${data.resolution} every ${Math.round(data.step_ms / MINUTE_MS).toLocaleString("en")} min · `}
          drag to zoom, click or use the slider to choose a time
        </small>
      </h2>
      <div className={styles.plot}>
        <Plot
          lines={lines}
          points={points}
          format={formatOf(column)}
          axis={axis}
          size={SMALL}
          absent={
            series.isError ? errorMessage(series.error) : series.isPending ? "Loading." : "No data in this range."
          }
          onClick={() => {
            const at = cursor.get();
            if (at !== null) move(at + width / 2);
          }}
        />
        <input
          type="range"
          aria-label="Shown time"
          aria-valuetext={`${dateTime(moment.start)} ${zoneName(moment.start)}`}
          min={first}
          max={last}
          step={width}
          value={moment.start}
          disabled={first === last}
          onChange={(event) => move(event.currentTarget.valueAsNumber)}
        />
      </div>
    </section>
  );
}
