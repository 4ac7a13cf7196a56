import { QueryCache, QueryClient, queryOptions } from "@tanstack/react-query";
import { ApiProblem, api, setCsrfToken, unwrap } from "./client";

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
      if (query.queryKey[0] !== "me") handleSignedOut(error);
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
    const me = await unwrap(api.GET("/api/auth/me"));
    setCsrfToken(me.csrf_token);
    return me;
  },
  staleTime: Number.POSITIVE_INFINITY,
});

export const nodesQuery = queryOptions({
  queryKey: ["nodes"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/nodes", { signal })),
});

/** The declared application metrics: Prometheus queries that experiments and guardrails may use. */
export const applicationMetricsQuery = queryOptions({
  queryKey: ["application-metrics"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/application-metrics", { signal })),
});

export const changeQuery = (id: string) =>
  queryOptions({
    queryKey: ["changes", id],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/changes/{change_id}", { params: { path: { change_id: id } }, signal })),
  });

export const nodeQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["node", nodeId],
    queryFn: ({ signal }) => unwrap(api.GET("/api/nodes/{node_id}", { params: { path: { node_id: nodeId } }, signal })),
  });

/** Changes that are applying or unconfirmed, on all nodes. */
export const openChangesQuery = queryOptions({
  queryKey: ["changes", "open"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/changes", { params: { query: { open: true } }, signal })),
});

const HEALTHY_POLL_MS = 10_000;
const OUTAGE_POLL_MS = 2_000;
const HEALTH_TIMEOUT_MS = 5_000;

/** Health of the backend and its database; polled more often during an outage. */
export const healthQuery = queryOptions({
  queryKey: ["health"],
  queryFn: ({ signal }) =>
    unwrap(api.GET("/api/health", { signal: AbortSignal.any([signal, AbortSignal.timeout(HEALTH_TIMEOUT_MS)]) })),
  retry: false,
  staleTime: 0,
  refetchInterval: ({ state }) =>
    state.status === "success" && state.data?.database === "ok" ? HEALTHY_POLL_MS : OUTAGE_POLL_MS,
});
