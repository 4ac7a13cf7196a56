import { QueryCache, QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiProblem, api, type Schemas, setCsrfToken, unwrap } from "./client";
import { MAX_FLEET_ROWS } from "./constants";
import type { paths } from "./schema";

let onSignedOut: () => void = () => undefined;

/** Sets the action for requests refused with 401. */
export function whenSignedOut(action: () => void): void {
  onSignedOut = action;
}

export function handleSignedOut(error: unknown): void {
  if (error instanceof ApiProblem && error.status === 401) onSignedOut();
}

export const queryClient = new QueryClient({
  queryCache: new QueryCache({
    onError: (error, query) => {
      // Without a known user, a page is being opened and redirects by itself.
      if (query.queryKey[0] !== "me" || query.state.data !== undefined) handleSignedOut(error);
    },
  }),
  defaultOptions: {
    queries: {
      staleTime: 10_000,
      refetchOnWindowFocus: false,
      retry: (failures, error) =>
        error instanceof ApiProblem && (error.isUnreachable || error.isDatabaseUnreachable) && failures < 1_000_000,
      retryDelay: (failures) => Math.min(5_000, 500 * 2 ** failures),
    },
    mutations: { onError: handleSignedOut },
  },
});

/** The signed-in user; rejects with a 401 ApiProblem without one. */
export const meQuery = queryOptions({
  queryKey: ["me"],
  queryFn: async () => {
    const me = await unwrap(api.GET("/api/v1/auth/me"));
    setCsrfToken(me.csrf_token);
    return me;
  },
  staleTime: Number.POSITIVE_INFINITY,
});

export type FleetQuery = NonNullable<paths["/api/v1/fleet"]["get"]["parameters"]["query"]>;

/** Nodes by filter, in pages, with the figures of all that match; it is fetched again when nodes change. */
export const fleetQuery = (query: FleetQuery = {}) =>
  queryOptions({
    queryKey: ["fleet", query],
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/fleet", { params: { query }, signal })),
  });

/** The numbers of nodes and CPUs of the fleet. */
export const fleetSizeQuery = fleetQuery({ limit: 0 });

/** How often what depends on change windows is read: they open and close by the clock. */
export const WINDOWS_POLL_MS = 60_000;

export const changeWindowsQuery = queryOptions({
  queryKey: ["change-windows"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/change-windows", { signal })),
  refetchInterval: WINDOWS_POLL_MS,
});

/** Above how many nodes actions on policies wait for approval. */
export const approvalThresholdQuery = queryOptions({
  queryKey: ["approval-threshold"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/approvals/threshold", { signal })),
});

/** The labels that most nodes have. */
export const labelsQuery = queryOptions({
  queryKey: ["fleet", "labels"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/fleet/labels", { signal })),
});

const BATCH_MS = 10;
type Waiting = { id: number; resolve: (node: Schemas["NodeSummary"] | null) => void; reject: (error: unknown) => void };
let waiting: Waiting[] = [];

async function answer(asked: Waiting[]): Promise<void> {
  const id = [...new Set(asked.map((one) => one.id))];
  try {
    const { rows } = await unwrap(api.GET("/api/v1/fleet", { params: { query: { id, limit: id.length } } }));
    for (const one of asked) one.resolve(rows.find((row) => row.id === one.id) ?? null);
  } catch (error) {
    for (const one of asked) one.reject(error);
  }
}

function answerWaiting(): void {
  const asked = waiting;
  waiting = [];
  for (let at = 0; at < asked.length; at += MAX_FLEET_ROWS) void answer(asked.slice(at, at + MAX_FLEET_ROWS));
}

/** A node's summary by its id, null if there is none; those asked for at the same time are fetched together. */
export const nodeSummaryQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node-summary", nodeId],
    staleTime: 60_000,
    queryFn: () =>
      new Promise<Schemas["NodeSummary"] | null>((resolve, reject) => {
        if (waiting.length === 0) setTimeout(answerWaiting, BATCH_MS);
        waiting.push({ id: nodeId, resolve, reject });
      }),
  });

/** The declared application metrics: Prometheus queries that experiments and guardrails may use. */
export const applicationMetricsQuery = queryOptions({
  queryKey: ["application-metrics"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/application-metrics", { signal })),
});

export const changeQuery = (id: string) =>
  queryOptions({
    queryKey: ["changes", id],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/changes/{change_id}", { params: { path: { change_id: id } }, signal })),
  });

export const nodeQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node", nodeId],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/nodes/{node_id}", { params: { path: { node_id: nodeId } }, signal })),
  });

/** Changes of people that are applying or unconfirmed, on all nodes: those of policies may be too many, and need nobody. */
export const openChangesQuery = queryOptions({
  queryKey: ["changes", "open"],
  queryFn: ({ signal }) =>
    unwrap(api.GET("/api/v1/changes", { params: { query: { open: true, origin: "people" } }, signal })),
});

const HEALTHY_POLL_MS = 10_000;
const OUTAGE_POLL_MS = 2_000;
const HEALTH_TIMEOUT_MS = 5_000;

/** Health of the backend and its database; polled more often during an outage. */
export const healthQuery = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) =>
    unwrap(api.GET("/api/v1/health", { signal: AbortSignal.any([signal, AbortSignal.timeout(HEALTH_TIMEOUT_MS)]) })),
  retry: false,
  staleTime: 0,
  refetchInterval: ({ state }) =>
    state.status === "success" && state.data?.database === "ok" ? HEALTHY_POLL_MS : OUTAGE_POLL_MS,
});
