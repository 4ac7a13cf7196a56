import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useEffect, useMemo } from "react";
import { MAX_FLEET_ROWS, MAX_HOT_SPOTS } from "../api/constants";
import { type FleetQuery, fleetQuery } from "../api/queries";
import { fleetStore } from "./fleetStore";
import { COMPARE_MS, HOUR_MS, type Moment } from "./pastTime";
import type { FleetSearch } from "./search";

/** Rows of a page of the table. */
export const TABLE_PAGE = 50;
/** Order and membership of live nodes change at most this often: rows stay readable and clickable. */
const STABLE_MS = 5_000;

/** The query of a page. Without a page of a table, of nodes that are too many for the map the hottest are shown. */
export function queryOf(search: FleetSearch, moment: Moment | null): FleetQuery {
  const { q, group, within, view, sort, color, page, compare } = search;
  const shown =
    view === "table"
      ? { sort: sort ?? "name", offset: ((page ?? 1) - 1) * TABLE_PAGE, limit: TABLE_PAGE }
      : {
          sort: `-${SORT_OF[color ?? "softirq"]}`,
          limit: MAX_FLEET_ROWS,
          hot_spots: moment === null ? MAX_HOT_SPOTS : 0,
        };
  return {
    ...shown,
    ...(q !== undefined && { q }),
    ...(group !== undefined && { group }),
    ...(group !== undefined && within !== undefined && { within }),
    ...(moment !== null && { at: new Date(moment.start).toISOString(), resolution: moment.resolution }),
    ...(moment !== null && compare !== undefined && { compared_h: COMPARE_MS[compare] / HOUR_MS }),
  };
}

const SORT_OF = {
  softirq: "softirq",
  busiest: "busiest",
  drops: "dropped",
  rtt: "rtt",
  "wrong-node": "wrong-node",
} as const;

/** The nodes that a page shows, kept up to date; their live figures are in fleetStore. */
export function useFleet(search: FleetSearch, moment: Moment | null) {
  const isLive = moment === null;
  const query = useMemo(() => queryOf(search, moment), [search, moment]);
  const answer = useQuery({
    ...fleetQuery(query),
    placeholderData: keepPreviousData,
    refetchInterval: isLive ? STABLE_MS : false,
  });
  const { data, isPlaceholderData } = answer;
  const { q = "", group = null, within = null } = query;
  const key = JSON.stringify([q, group, within]);
  useEffect(() => {
    if (data !== undefined && isLive && !isPlaceholderData) fleetStore.show(data, key);
  }, [data, isLive, isPlaceholderData, key]);
  const ids = JSON.stringify(
    isLive && data !== undefined
      ? [...new Set([...data.rows, ...data.hot_spots].map(({ id }) => id))].sort((a, b) => a - b)
      : null,
  );
  useEffect(() => {
    const shown = JSON.parse(ids) as number[] | null;
    return shown === null ? undefined : fleetStore.watch({ q, group, within, ids: shown });
  }, [q, group, within, ids]);
  return answer;
}
