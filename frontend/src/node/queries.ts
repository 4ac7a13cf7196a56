import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, fetchBinary, unwrap } from "../api/client";
import { HeatBlock } from "../charts/heatBlock";
import type { SeriesAnswer } from "../charts/seriesRing";
import type { Range } from "../charts/TimeOverlay";
import { type ChartName, HISTORY_METRICS } from "../lib/metrics";
import type { HeatShare } from "./cpuShares";
import { CHART_POINTS, HEAT_COLUMNS, type LiveWindow } from "./time/liveWindow";
import { hottestCpus, joinNics, PARTS } from "./timeseries/breakdown";

const iso = (ms: number) => new Date(ms).toISOString();
const times = ({ from, to }: Range) => ({ from_time: iso(from), to_time: iso(to) });

/** Heatmap cells (CPU × time) of a range. Rejects with ApiProblem or HeatBlockError. */
async function fetchHeat(nodeId: number, share: HeatShare, range: Range, columns: number, signal?: AbortSignal) {
  const query = new URLSearchParams({ share, ...times(range), columns: String(columns) });
  return HeatBlock.parse(await fetchBinary(`/api/v1/nodes/${nodeId}/heatmap?${query}`, signal));
}

/** The lines of all charts over a range. Rejects with ApiProblem or HeatBlockError. */
async function fetchSeries(nodeId: number, range: Range, signal?: AbortSignal): Promise<SeriesAnswer> {
  const [series, softirq] = await Promise.all([
    unwrap(
      api.GET("/api/v1/nodes/{node_id}/series", {
        params: {
          path: { node_id: nodeId },
          query: { metric: HISTORY_METRICS, ...times(range), points: CHART_POINTS },
        },
        signal: signal ?? null,
      }),
    ),
    fetchHeat(nodeId, "softirq", range, CHART_POINTS, signal),
  ]);
  const { step_ms, times_ms, values } = series;
  const hottest = times_ms.map((time) => softirq.hottestPercent(time + step_ms / 2));
  return { step_ms, times_ms, values: { ...values, softirq_cpu_percent: hottest } };
}

/** A chart's series for each NIC, interrupt or CPU. Rejects with ApiProblem or HeatBlockError. */
async function fetchParts(nodeId: number, chart: ChartName, range: Range, of: PartsOf, signal?: AbortSignal) {
  const path = { node_id: nodeId };
  const query = { ...times(range), points: CHART_POINTS };
  const more = { signal: signal ?? null };
  if (chart === "interrupts")
    return unwrap(api.GET("/api/v1/nodes/{node_id}/interrupts", { params: { path, query }, ...more }));
  if (chart === "softirq") return hottestCpus(await fetchHeat(nodeId, "softirq", range, CHART_POINTS, signal), of.cpu);
  const metric = [...(PARTS[chart]?.metrics ?? [])];
  const answers = of.nics.map(async (netdev) => {
    const params = { path, query: { ...query, metric, netdev } };
    return { nic: netdev, ...(await unwrap(api.GET("/api/v1/nodes/{node_id}/series", { params, ...more }))) };
  });
  return joinNics(await Promise.all(answers));
}

/** A past range does not change: its data stays fresh. */
const PAST = { staleTime: 60_000, placeholderData: keepPreviousData };

export const heatQuery = (nodeId: number, share: HeatShare, range: Range | null) =>
  queryOptions({
    queryKey: ["heat", nodeId, share, range],
    enabled: range !== null,
    queryFn: ({ signal }) => fetchHeat(nodeId, share, range as Range, HEAT_COLUMNS, signal),
    ...PAST,
    placeholderData: (before, query) => (query?.queryKey[2] === share ? before : undefined),
  });

export const seriesQuery = (nodeId: number, range: Range | null) =>
  queryOptions({
    queryKey: ["series", nodeId, range],
    enabled: range !== null,
    queryFn: ({ signal }) => fetchSeries(nodeId, range as Range, signal),
    ...PAST,
  });

export const matrixQuery = (nodeId: number, range: Range | null) =>
  queryOptions({
    queryKey: ["matrix", nodeId, range],
    enabled: range !== null,
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/nodes/{node_id}/matrix", {
          params: { path: { node_id: nodeId }, query: times(range as Range) },
          signal,
        }),
      ),
    ...PAST,
  });

/** Minimum polling interval of series that live frames do not have; a longer window is polled less often. */
const MIN_POLL_MS = 2000;

/** nics: those with lines of their own; cpu: one that is always among the lines. */
type PartsOf = { nics: string[]; cpu: number | null };

/** A chart's series for each NIC, interrupt or CPU, over a past range or the live window. */
export const partsQuery = (nodeId: number, chart: ChartName, past: Range | null, window: LiveWindow, of: PartsOf) =>
  queryOptions<SeriesAnswer>({
    queryKey: ["parts", nodeId, chart, past ?? window.spanMs, of],
    enabled: chart in PARTS,
    queryFn: ({ signal }) => fetchParts(nodeId, chart, past ?? window.range(), of, signal),
    refetchInterval: past === null && Math.max(MIN_POLL_MS, window.spanMs / CHART_POINTS),
    ...PAST,
    staleTime: past === null ? 0 : PAST.staleTime,
  });

/** F and response times (µs) of service classes over a past range or the live window. */
export const classesHistoryQuery = (nodeId: number, past: Range | null, window: LiveWindow) =>
  queryOptions({
    queryKey: ["classes-history", nodeId, past ?? window.spanMs],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/nodes/{node_id}/classes/history", {
          params: {
            path: { node_id: nodeId },
            query: { figure: ["f", "p50_us", "p95_us", "p99_us"], ...times(past ?? window.range()) },
          },
          signal,
        }),
      ),
    refetchInterval: past === null && Math.max(MIN_POLL_MS, window.spanMs / CHART_POINTS),
    ...PAST,
    staleTime: past === null ? 0 : PAST.staleTime,
  });

const COALESCING_POLL_MS = 10_000;

/** A network device's coalescing and trade-off, for measured or assumed traffic. */
export const coalescingQuery = (nodeId: number, netdev: string, { pps, frame }: { pps?: number; frame?: number }) =>
  queryOptions({
    queryKey: ["coalescing", nodeId, netdev, pps, frame],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/nodes/{node_id}/netdevs/{netdev}/coalescing", {
          params: {
            path: { node_id: nodeId, netdev },
            query: { packets_per_s: pps ?? null, frame_bytes: frame ?? null },
          },
          signal,
        }),
      ),
    staleTime: COALESCING_POLL_MS,
    refetchInterval: COALESCING_POLL_MS,
    placeholderData: (before, query) => (query?.queryKey[2] === netdev ? before : undefined),
  });

const SUGGESTIONS_POLL_MS = 10_000;
/** Between polls while the load after a change is measured, of which the seconds left are shown. */
const MEASURING_POLL_MS = 2000;

/** Suggested moves for the node's hot CPUs, from its last minute, or from the time since its last change. */
export const suggestionsQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["suggestions", nodeId],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/nodes/{node_id}/suggestions", { params: { path: { node_id: nodeId } }, signal })),
    refetchInterval: ({ state }) => (state.data?.measuring_s ? MEASURING_POLL_MS : SUGGESTIONS_POLL_MS),
  });

/** The node's newest changes (range null), or those of a past range. */
export const changesQuery = (nodeId: number, range: Range | null) =>
  queryOptions({
    queryKey: ["changes", "node", nodeId, range],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/changes", {
          params: { query: { node_id: nodeId, ...(range === null ? {} : times(range)) } },
          signal,
        }),
      ),
  });

/** Memory and processes by NUMA node; refetched with the node's flows after a live event (refetchPolicies). */
export const numaQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "numa"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/nodes/{node_id}/numa", { params: { path: { node_id: nodeId } }, signal })),
  });

/** What moving a process to each NUMA node is predicted to save and cost. */
export const numaOptionsQuery = (nodeId: number, pid: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "numa", pid],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/nodes/{node_id}/numa/{pid}/options", { params: { path: { node_id: nodeId, pid } }, signal }),
      ),
  });
