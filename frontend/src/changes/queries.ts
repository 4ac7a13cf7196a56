import { infiniteQueryOptions, queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { type ChangesSearch, logQuery, stopLogQuery } from "./search";

export type Change = Schemas["Change"];
export type LogEntry = Schemas["LogEntry"];

/** What of a search selects changes; the rest is what is unfolded and open. */
export const filtersOf = ({ change: _, undo: __, stop: ___, ...filters }: ChangesSearch): ChangesSearch => filters;

/** Pages of the log of changes, newest first; a span ends when the first page is fetched. */
export const logPages = (search: ChangesSearch) =>
  infiniteQueryOptions({
    queryKey: ["changes", "log", filtersOf(search)],
    initialPageParam: undefined as string | undefined,
    queryFn: ({ pageParam, signal }) =>
      unwrap(
        api.GET("/api/v1/changes/log", {
          params: { query: { ...logQuery(search, Date.now()), older_than: pageParam } },
          signal,
        }),
      ),
    getNextPageParam: (page) => page.older ?? undefined,
    placeholderData: (before) => before,
  });

/** Stops of enforcement that a search selects, newest first. */
export const stopEvents = (search: ChangesSearch) =>
  queryOptions({
    queryKey: ["policies", "stops", "log", filtersOf(search)],
    queryFn: async ({ signal }) => {
      const query = stopLogQuery(search, Date.now());
      return query === null ? [] : unwrap(api.GET("/api/v1/stops/log", { params: { query }, signal }));
    },
    placeholderData: (before) => before,
  });

const NODE_ENTRIES = 20;

/** The newest entries of the log of one node, whenever they were made. */
export const nodeLogQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["changes", "node", nodeId, "log"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/changes/log", { params: { query: { node_id: nodeId, limit: NODE_ENTRIES } }, signal })),
  });

const HOUR_MS = 3_600_000;

/** The search that lists the changes of a group one by one. */
export const searchOfGroup = (search: ChangesSearch, { change, hour }: LogEntry): ChangesSearch => {
  const from = Date.parse(hour ?? change.created_at);
  return { ...filtersOf(search), by: change.created_by, from, to: from + HOUR_MS, span: undefined, moves: "each" };
};

/** What the enforced policies of a node do about values that an undo would set there. */
export const policyResponsesQuery = (nodeId: number, desired: Schemas["DesiredValueIn"][], rolledBack: boolean) =>
  queryOptions({
    queryKey: ["policies", "responses", nodeId, desired, rolledBack],
    enabled: desired.length > 0,
    staleTime: 0,
    gcTime: 0,
    queryFn: ({ signal }) =>
      unwrap(
        api.POST("/api/v1/nodes/{node_id}/policy-responses", {
          params: { path: { node_id: nodeId } },
          body: { desired, rolled_back: rolledBack },
          signal,
        }),
      ),
  });

/** The settings of a node that changes on record wrote, with their earlier values. */
export const writtenSettingsQuery = (nodeId: number) =>
  queryOptions({
    queryKey: ["changes", "node", nodeId, "written"],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/v1/nodes/{node_id}/written-settings", { params: { path: { node_id: nodeId } }, signal })),
  });
