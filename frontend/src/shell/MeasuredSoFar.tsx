import { useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { METRICS } from "../api/metrics";
import { formatFigure } from "../lib/format";
import { formatOf } from "../lib/metrics";

const BEFORE_MS = 60_000;
const REFRESH_MS = 5_000;
const MIN_VALUES = 3;

const COMPARED = ["rtt_p99_us", "softnet_dropped_per_s", "interrupts_per_s"] as const;

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
      unwrap(
        api.GET("/api/nodes/{node_id}/series", {
          params: {
            path: { node_id: change.node_id },
            query: {
              metric: [...COMPARED],
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
  const parts = COMPARED.flatMap((metric) => {
    const pair = beforeAndSince(data, metric, appliedMs);
    if (pair === null) return [];
    const [before, since] = [formatFigure(formatOf(metric)(pair[0])), formatFigure(formatOf(metric)(pair[1]))];
    return before === since ? [] : [`${METRICS[metric].short} ${before} → ${since}`];
  });
  if (parts.length === 0) return null;
  return (
    <span className="muted" title="Median in the minute before the change → median since">
      {parts.join(" · ")}
    </span>
  );
}
