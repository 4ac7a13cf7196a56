import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { api, fetchBinary, unwrap } from "../api/client";
import { HeatBlock } from "../charts/heatBlock";
import type { Range } from "../charts/TimeOverlay";
import { HISTORY_METRICS } from "../lib/metrics";
import type { HeatShare } from "./cpuShares";
import { CHART_POINTS, HEAT_COLUMNS, type LiveWindow } from "./time/liveWindow";

const iso = (ms: number) => new Date(ms).toISOString();
const times = ({ from, to }: Range) => ({ from_time: iso(from), to_time: iso(to) });

/** Heatmap cells (CPU × time) of a range. Rejects with ApiProblem or HeatBlockError. */
async function fetchHeat(nodeId: number, share: HeatShare, range: Range, signal?: AbortSignal) {
  const query = new URLSearchParams({ share, ...times(range), columns: String(HEAT_COLUMNS) });
  return HeatBlock.parse(await fetchBinary(`/api/nodes/${nodeId}/heatmap?${query}`, signal));
}

/** The metrics of all charts over a range. Rejects with ApiProblem. */
function fetchSeries(nodeId: number, range: Range, signal?: AbortSignal) {
  return unwrap(
    api.GET("/api/nodes/{node_id}/series", {
      params: {
        path: { node_id: nodeId },
        query: { metric: HISTORY_METRICS, ...times(range), points: CHART_POINTS },
      },
      signal: signal ?? null,
    }),
  );
}

/** A past range does not change: its data stays fresh. */
const PAST = { staleTime: 60_000, placeholderData: keepPreviousData };

export const heatQuery = (nodeId: number, share: HeatShare, range: Range | null) =>
  queryOptions({
    queryKey: ["heat", nodeId, share, range],
    enabled: range !== null,
    queryFn: ({ signal }) => fetchHeat(nodeId, share, range as Range, signal),
    ...PAST,
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
        api.GET("/api/nodes/{node_id}/matrix", {
          params: { path: { node_id: nodeId }, query: times(range as Range) },
          signal,
        }),
      ),
    ...PAST,
  });

/** Minimum polling interval of service classes; a longer window is polled less often. */
const MIN_CLASSES_POLL_MS = 2000;

/** F and response times (µs) of service classes over a past range or the live window. */
export const classesHistoryQuery = (nodeId: number, past: Range | null, window: LiveWindow) =>
  queryOptions({
    queryKey: ["classes-history", nodeId, past ?? window.spanMs],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/nodes/{node_id}/classes/history", {
          params: {
            path: { node_id: nodeId },
            query: { figure: ["f", "p50_us", "p95_us", "p99_us"], ...times(past ?? window.range()) },
          },
          signal,
        }),
      ),
    refetchInterval: past === null && Math.max(MIN_CLASSES_POLL_MS, window.spanMs / CHART_POINTS),
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
        api.GET("/api/nodes/{node_id}/netdevs/{netdev}/coalescing", {
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

/** The node's newest changes (range null), or those of a past range. */
export const changesQuery = (nodeId: number, range: Range | null) =>
  queryOptions({
    queryKey: ["changes", "node", nodeId, range],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/changes", {
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
      unwrap(api.GET("/api/nodes/{node_id}/numa", { params: { path: { node_id: nodeId } }, signal })),
  });

/** What moving a process to each NUMA node is predicted to save and cost. */
export const numaOptionsQuery = (nodeId: number, pid: number) =>
  queryOptions({
    queryKey: ["node-policies", nodeId, "numa", pid],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/nodes/{node_id}/numa/{pid}/options", { params: { path: { node_id: nodeId, pid } }, signal }),
      ),
  });
