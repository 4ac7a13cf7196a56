import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { queryClient } from "../api/queries";
import type { Spec, Study } from "./types";

const PAGE = 50;
/** How often the progress of a running study is read. */
const PROGRESS_MS = 1000;

const LISTS = ["studies", "list"];

/** A page of the list, newest first. */
export const studiesQuery = (older?: number) =>
  queryOptions({
    queryKey: [...LISTS, older],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/simulations", { params: { query: { older_than: older ?? null, limit: PAGE } }, signal })),
    placeholderData: (before) => before,
    refetchInterval: ({ state }) =>
      state.data?.simulations.some((one) => one.state === "running") ? PROGRESS_MS : false,
  });

export const studyQuery = (id: number) =>
  queryOptions({
    queryKey: ["studies", "one", id],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/simulations/{simulation_id}", { params: { path: { simulation_id: id } }, signal })),
    refetchInterval: ({ state }) => (state.data?.state === "running" ? PROGRESS_MS : false),
  });

/** About how long a study would take. */
export const estimateQuery = (spec: Spec | null) =>
  queryOptions({
    queryKey: ["studies", "estimate", spec],
    queryFn: ({ signal }) =>
      spec === null
        ? Promise.reject(new Error("There is no valid study."))
        : unwrap(api.POST("/api/v1/simulations/estimate", { body: { spec }, signal })),
    enabled: spec !== null,
    retry: false,
  });

/** Stores a study that the backend returned for a command. */
export function applyStudy(study: Study): void {
  queryClient.setQueryData(studyQuery(study.id).queryKey, study);
  void queryClient.invalidateQueries({ queryKey: LISTS });
}

/** The stored traces by name. */
export const tracesQuery = queryOptions({
  queryKey: ["studies", "traces"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/simulation-traces", { signal })),
});
