/** Saved views: the page's search parameters by name, without its time. */

import { queryOptions } from "@tanstack/react-query";
import { api, unwrap } from "../api/client";
import { type FleetSearch, validateFleetSearch } from "./search";

export const fleetViewsQuery = queryOptions({
  queryKey: ["fleet-views"],
  queryFn: ({ signal }) => unwrap(api.GET("/api/v1/fleet-views", { signal })),
});

/** The text that is saved of a page: how it shows nodes, not when. */
export function viewText({ from: _, to: __, at: ___, page: ____, ...search }: FleetSearch): string {
  const filled = Object.entries(search).flatMap(([name, value]) =>
    value === undefined ? [] : [[name, String(value)]],
  );
  return new URLSearchParams(filled.sort()).toString();
}

/** The page's parameters of a saved view at the time that the page shows now. */
export function searchOf(text: string, { from, to, at }: FleetSearch): FleetSearch {
  return { ...validateFleetSearch(Object.fromEntries(new URLSearchParams(text))), from, to, at };
}
