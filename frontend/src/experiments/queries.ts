import { queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { queryClient } from "../api/queries";
import type { ListSearch } from "./search";
import type { Summary } from "./types";

export const hasEnded = ({ state }: Pick<Summary, "state">): boolean => state !== "queued" && state !== "running";

const PAGE = 50;
const LISTS = ["experiments", "list"];
type Page = Schemas["ExperimentPage"];

/** A page of the list, newest first. */
export const experimentsQuery = ({ node, state, older }: ListSearch) =>
  queryOptions({
    queryKey: [...LISTS, node, state, older],
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/experiments", {
          params: { query: { node_id: node ?? null, state: state ?? null, older_than: older ?? null, limit: PAGE } },
          signal,
        }),
      ),
    placeholderData: (before) => before,
  });

/** Running experiments of all nodes. */
export const runningQuery = experimentsQuery({ state: "running" });

export const experimentQuery = (id: number) =>
  queryOptions({
    queryKey: ["experiments", "one", id],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/experiments/{experiment_id}", { params: { path: { experiment_id: id } }, signal })),
  });

export const templatesQuery = (nodeId: number | undefined) =>
  queryOptions({
    queryKey: ["experiment-templates", nodeId],
    enabled: nodeId !== undefined,
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/nodes/{node_id}/experiment-templates", { params: { path: { node_id: nodeId ?? 0 } }, signal }),
      ),
  });

/** Applies a summary from the backend; full results are refetched when a run has ended. */
export function applyExperimentUpdate(summary: Summary): void {
  const full = experimentQuery(summary.id).queryKey;
  const known = queryClient.getQueryData(full);
  if (known !== undefined) {
    queryClient.setQueryData(full, { ...known, ...summary });
    const runs = (of: Summary) => of.runs_done + of.runs_discarded;
    if (known.state !== summary.state || runs(known) !== runs(summary))
      void queryClient.invalidateQueries({ queryKey: full });
  }
  let listed = false;
  queryClient.setQueriesData<Page>({ queryKey: LISTS }, (page) => {
    if (page === undefined) return page;
    listed ||= page.experiments.some(({ id, state }) => id === summary.id && state === summary.state);
    return { ...page, experiments: page.experiments.map((one) => (one.id === summary.id ? summary : one)) };
  });
  // New, or in another state: lists and queue positions change.
  if (!listed) void queryClient.invalidateQueries({ queryKey: LISTS });
}
