import { queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";

export type Stop = Schemas["Stop"];
export type StopEffect = Schemas["StopEffect"];

const UNANSWERED_POLL_MS = 1_000;
const POLL_MS = 10_000;

/** The stops of enforcement in force. Polled while there is one: agents answer, and nodes connect. */
export const stopsQuery = queryOptions({
  queryKey: ["policies", "stops"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/stops", { signal })),
  refetchInterval: ({ state }) => {
    if (!state.data?.length) return false;
    return state.data.some((stop) => stop.unanswered > 0) ? UNANSWERED_POLL_MS : POLL_MS;
  },
});

/** What a stop on the nodes with these labels would reach now. */
export const stopEffectQuery = (labels: Record<string, string>) =>
  queryOptions({
    queryKey: ["policies", "stops", "effect", labels],
    queryFn: ({ signal }) => unwrap(api.POST("/api/v1/stops/preview", { body: { labels }, signal })),
    staleTime: 0,
  });
