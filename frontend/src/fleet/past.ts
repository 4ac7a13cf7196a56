/** Figures of the fleet in one past minute or hour. */

import { keepPreviousData, queryOptions, useQuery } from "@tanstack/react-query";
import { api, type Schemas, unwrap } from "../api/client";
import { ABSENT_U32, HEALTHS } from "../api/constants";
import { FLEET_METRICS, type FleetMetric } from "../lib/metrics";
import type { FleetFrame } from "../live/frames";
import { FleetFigures, fleetStore } from "./fleetStore";
import { type Moment, type Range, widthOf } from "./pastTime";

type Page = Schemas["PastFigures"];

const LIVE = HEALTHS.indexOf("live");
/** Until a past minute certainly does not change any more, it is read again after this time. */
const STALE_MS = 60_000;

/** A fleet frame of the pages of a moment. */
export function pastFrame(pages: Page[], timeMs: number): FleetFrame {
  const ids = pages.flatMap(({ node_ids }) => node_ids);
  const cpu = (name: "busiest_cpu" | "softirq_cpu") =>
    Uint32Array.from(
      pages.flatMap((page) => page[name]),
      (on) => on ?? ABSENT_U32,
    );
  const metric = (name: FleetMetric) =>
    Float32Array.from(
      pages.flatMap((page) => page.metrics[name] ?? page.node_ids.map(() => null)),
      (value) => value ?? Number.NaN,
    );
  return {
    type: "fleet",
    time_ms: timeMs,
    node_id: Uint32Array.from(ids),
    health: new Uint8Array(ids.length).fill(LIVE),
    busiest_cpu: cpu("busiest_cpu"),
    softirq_cpu: cpu("softirq_cpu"),
    ...(Object.fromEntries(FLEET_METRICS.map((name) => [name, metric(name)])) as Record<FleetMetric, Float32Array>),
  };
}

/** Past figures of the fleet; the health of its nodes is the present one. */
export class PastFigures extends FleetFigures {
  override readonly moment: Moment;

  constructor(moment: Moment, pages: Page[] = []) {
    super(pastFrame(pages, moment.start));
    this.moment = moment;
  }

  override health(nodeId: number): Schemas["Health"] {
    return fleetStore.getLatest().health(nodeId);
  }
}

/** The figures of a moment, in as many requests as the fleet has pages. */
const pastQuery = (moment: Moment | null) =>
  queryOptions({
    queryKey: ["fleet-past", moment],
    enabled: moment !== null,
    staleTime: STALE_MS,
    placeholderData: keepPreviousData,
    queryFn: async ({ signal }) => {
      if (moment === null) throw new Error("There is no moment to read.");
      const at = new Date(moment.start).toISOString();
      const pages: Page[] = [];
      for (let after: number | null = 0; after !== null; ) {
        const query = { at, resolution: moment.resolution, after };
        const page: Page = await unwrap(api.GET("/api/nodes/figures", { params: { query }, signal }));
        pages.push(page);
        after = page.after;
      }
      return new PastFigures(moment, pages);
    },
  });

/** The figures of a moment, while they load those of the moment shown before; null for no moment. */
export function usePast(moment: Moment | null) {
  const { data, error, isPlaceholderData, isLoading } = useQuery(pastQuery(moment));
  return { figures: moment === null ? null : (data ?? null), error, isLoading: isLoading || isPlaceholderData };
}

/** The whole fleet over a range. */
export const fleetSeriesQuery = ({ from, to }: Range) =>
  queryOptions({
    queryKey: ["fleet-series", from, to],
    staleTime: STALE_MS,
    queryFn: ({ signal }) => {
      const query = { from_time: new Date(from).toISOString(), to_time: new Date(to).toISOString() };
      return unwrap(api.GET("/api/nodes/figures/series", { params: { query }, signal }));
    },
  });

/** The end of a moment. */
export const endOf = (moment: Moment): number => moment.start + widthOf(moment);
