import { keepPreviousData, queryOptions } from "@tanstack/react-query";
import { answer, api, binary } from "../api/client";
import { HeatBlock } from "../charts/heatBlock";
import type { Range } from "../charts/TimeOverlay";
import type { HeatShare } from "./cpuShares";
import { CHART_POINTS, HEAT_COLUMNS, type LiveWindow } from "./time/liveWindow";
import { METRICS } from "./timeseries/metricValues";

const iso = (ms: number) => new Date(ms).toISOString();
const times = ({ from, to }: Range) => ({ from_time: iso(from), to_time: iso(to) });

/** CPU × time cells of a range. */
async function fetchHeat(nodeId: number, share: HeatShare, range: Range, signal?: AbortSignal) {
  const query = new URLSearchParams({ share, ...times(range), columns: String(HEAT_COLUMNS) });
  return HeatBlock.parse(await binary(`/api/nodes/${nodeId}/heatmap?${query}`, signal));
}

/** All the charts' lines over a range. */
function fetchSeries(nodeId: number, range: Range, signal?: AbortSignal) {
  return answer(
    api.GET("/api/nodes/{node_id}/series", {
      params: {
        path: { node_id: nodeId },
        query: { metric: [...METRICS], ...times(range), points: CHART_POINTS },
      },
      signal: signal ?? null,
    }),
  );
}

/** A past range does not change: what was fetched of it stays. */
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
      answer(
        api.GET("/api/nodes/{node_id}/matrix", {
          params: { path: { node_id: nodeId }, query: times(range as Range) },
          signal,
        }),
      ),
    ...PAST,
  });

/** The least time between two looks at what classes got just now; a longer window is looked at less often. */
const CLASSES_MS = 2000;

/** F and response times of service classes over a past range, or over the window that follows the present. */
export const classesHistoryQuery = (nodeId: number, past: Range | null, window: LiveWindow) =>
  queryOptions({
    queryKey: ["classes-history", nodeId, past ?? window.spanMs],
    queryFn: ({ signal }) =>
      answer(
        api.GET("/api/nodes/{node_id}/classes/history", {
          params: {
            path: { node_id: nodeId },
            query: { figure: ["f", "p50_us", "p95_us", "p99_us"], ...times(past ?? window.range()) },
          },
          signal,
        }),
      ),
    refetchInterval: past === null && Math.max(CLASSES_MS, window.spanMs / CHART_POINTS),
    ...PAST,
    staleTime: past === null ? 0 : PAST.staleTime,
  });

const COALESCING_MS = 10_000;

/** A netdev's coalescing, for measured traffic or for what is supposed of it. */
export const coalescingQuery = (nodeId: number, netdev: string, { pps, frame }: { pps?: number; frame?: number }) =>
  queryOptions({
    queryKey: ["coalescing", nodeId, netdev, pps, frame],
    queryFn: ({ signal }) =>
      answer(
        api.GET("/api/nodes/{node_id}/netdevs/{netdev}/coalescing", {
          params: {
            path: { node_id: nodeId, netdev },
            query: { packets_per_s: pps ?? null, frame_bytes: frame ?? null },
          },
          signal,
        }),
      ),
    staleTime: COALESCING_MS,
    refetchInterval: COALESCING_MS,
    placeholderData: (before, query) => (query?.queryKey[2] === netdev ? before : undefined),
  });

/** The node's newest changes, or those of a past range. */
export const changesQuery = (nodeId: number, range: Range | null) =>
  queryOptions({
    queryKey: ["changes", "node", nodeId, range],
    queryFn: ({ signal }) =>
      answer(
        api.GET("/api/changes", {
          params: { query: { node_id: nodeId, ...(range === null ? {} : times(range)) } },
          signal,
        }),
      ),
  });
