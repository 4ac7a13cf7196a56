/** The fleet over a past range, and figures of one past minute or hour. */

import { queryOptions } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { FleetFigures, frameOfNodes } from "./fleetStore";
import { type Moment, type Range, widthOf } from "./pastTime";

/** Until a past minute certainly does not change any more, it is read again after this time. */
const STALE_MS = 60_000;

/** The figures of the rows of an answer about a moment, or of the moment before that they are compared with. */
export function pastFigures(moment: Moment, rows: Schemas["NodeSummary"][], before?: Schemas["FleetAnswer"]["before"]) {
  const shown = before ? rows.map((row, at) => ({ ...row, figures: before[at] ?? null })) : rows;
  return new FleetFigures(frameOfNodes(shown), undefined, moment);
}

/** The whole fleet over a range. */
export const fleetSeriesQuery = ({ from, to }: Range) =>
  queryOptions({
    queryKey: ["fleet-series", from, to],
    staleTime: STALE_MS,
    queryFn: ({ signal }) => {
      const query = { from_time: new Date(from).toISOString(), to_time: new Date(to).toISOString() };
      return unwrap(api.GET("/api/v1/fleet/series", { params: { query }, signal }));
    },
  });

/** The end of a moment. */
export const endOf = (moment: Moment): number => moment.start + widthOf(moment);
