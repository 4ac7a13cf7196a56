import { useQuery } from "@tanstack/react-query";
import { answer, api, type Schemas } from "../api/client";
import { type Figure, micros, perSecond, text } from "../lib/format";

const BEFORE_MS = 60_000;
const REFRESH_MS = 5_000;
const MIN_VALUES = 3;

const METRICS: { metric: Schemas["Metric"]; label: string; format: (value: number) => Figure }[] = [
  { metric: "rtt_p99_us", label: "RTT p99", format: micros },
  { metric: "dropped_per_s", label: "dropped", format: perSecond },
  { metric: "interrupts_per_s", label: "interrupts", format: perSecond },
];

function median(values: number[]): number | null {
  if (values.length < MIN_VALUES) return null;
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2
    ? (sorted[middle] as number)
    : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2;
}

/** A metric's medians before and since a moment; null unless both sides have at least three values. */
export function beforeAndSince(
  series: Pick<Schemas["Series"], "times_ms" | "values">,
  metric: string,
  momentMs: number,
): [before: number, since: number] | null {
  const side = (since: boolean) =>
    median(
      (series.values[metric] ?? []).filter(
        (value, index): value is number => value !== null && (series.times_ms[index] as number) >= momentMs === since,
      ),
    );
  const [before, since] = [side(false), side(true)];
  return before === null || since === null ? null : [before, since];
}

/** Medians of metrics in the minute before a change and since it was applied; only metrics that differ. */
export function MeasuredSoFar({ change }: { change: Schemas["Change"] }) {
  const appliedMs = change.applied_at === null ? null : Date.parse(change.applied_at);
  const series = useQuery({
    queryKey: ["measured", change.id],
    enabled: appliedMs !== null,
    refetchInterval: REFRESH_MS,
    queryFn: ({ signal }) =>
      answer(
        api.GET("/api/nodes/{node_id}/series", {
          params: {
            path: { node_id: change.node_id },
            query: {
              metric: METRICS.map(({ metric }) => metric),
              from_time: new Date((appliedMs as number) - BEFORE_MS).toISOString(),
              to_time: new Date().toISOString(),
            },
          },
          signal,
        }),
      ),
  });
  if (appliedMs === null || series.data === undefined) return null;
  const { data } = series;
  const parts = METRICS.flatMap(({ metric, label, format }) => {
    const pair = beforeAndSince(data, metric, appliedMs);
    if (pair === null) return [];
    const [before, since] = [text(format(pair[0])), text(format(pair[1]))];
    return before === since ? [] : [`${label} ${before} → ${since}`];
  });
  if (parts.length === 0) return null;
  return (
    <span className="muted" title="Median in the minute before the change → median since">
      {parts.join(" · ")}
    </span>
  );
}
