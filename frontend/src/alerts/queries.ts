import { queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { queryClient } from "../api/queries";

export type Alert = Schemas["Alert"];
export type Rule = Schemas["AlertRule"];
export type Receiver = Schemas["Receiver"];
export type Silence = Schemas["Silence"];

/** The leader evaluates rules every 15 s. */
const REFETCH_MS = 10_000;

export const alertsQuery = queryOptions({
  queryKey: ["alerts", "list"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/alerts", { signal })),
  refetchInterval: REFETCH_MS,
});

export const rulesQuery = queryOptions({
  queryKey: ["alerts", "rules"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/alert-rules", { signal })),
});

export const silencesQuery = queryOptions({
  queryKey: ["alerts", "silences"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/alert-silences", { signal })),
  refetchInterval: REFETCH_MS,
});

export const receiversQuery = queryOptions({
  queryKey: ["alerts", "receivers"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/alert-receivers", { signal })),
});

export const refetchAlerts = () => queryClient.invalidateQueries({ queryKey: ["alerts"] });
