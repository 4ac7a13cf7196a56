import * as v from "valibot";
import type { FleetMetric } from "../lib/metrics";
import { filledText, param, positiveInteger, timeMs, validated, withRange } from "../lib/searchParams";
import { isColumns } from "./columns";

/** Figures of the fleet frame that the map can be coloured by. */
export const COLORS = ["softirq", "busiest", "drops", "rtt", "wrong-node"] as const;
export type ColorBy = (typeof COLORS)[number];

const SORTS = [
  "name",
  "health",
  "busiest",
  "softirq",
  "rx",
  "tx",
  "interrupts",
  "dropped",
  "squeezed",
  "rtt",
  "wrong-node",
] as const;
export type SortBy = (typeof SORTS)[number];

export type FigureColumn = "busiest_cpu" | "softirq_cpu" | FleetMetric;

/** How long before the shown time the figures are taken from with which it is compared: an hour, a day, a week. */
export const COMPARISONS = ["1h", "1d", "1w"] as const;

const LEAST_RANGE_MS = 60_000;

const FleetSearchSchema = v.pipe(
  v.object({
    /** The filter's text. */
    q: param(filledText),
    /** kernel, driver or label:NAME. */
    group: param(filledText),
    /** The group whose nodes are shown; absent for all of them. */
    within: param(v.string()),
    /** The table's page, from 1. */
    page: param(positiveInteger),
    color: param(v.picklist(COLORS)),
    view: param(v.literal("table")),
    /** A column, with - for descending. */
    sort: param(
      v.pipe(
        v.string(),
        v.check((sort) => SORTS.some((name) => name === sort.replace(/^-/, ""))),
      ),
    ),
    /** A past range in Unix milliseconds; absent while the page follows the present. */
    from: param(timeMs),
    to: param(timeMs),
    /** The shown time in the range; its end when absent. */
    at: param(timeMs),
    /** The table's columns, `busiest,rx`; all of them when absent. */
    columns: param(v.pipe(v.string(), v.check(isColumns))),
    compare: param(v.picklist(COMPARISONS)),
  }),
  v.transform(withRange((lengthMs) => lengthMs >= LEAST_RANGE_MS)),
);

/** The fleet page's part of the URL. */
export type FleetSearch = v.InferOutput<typeof FleetSearchSchema>;

export const validateFleetSearch = validated(FleetSearchSchema);
