import * as v from "valibot";
import { filledText, param, validated } from "../lib/searchParams";
import type { FleetFrame } from "../live/frames";

/** Figures of the fleet frame that the map can be coloured by. */
export const COLORS = ["softirq", "busiest", "drops", "rtt"] as const;
export type ColorBy = (typeof COLORS)[number];

const SORTS = ["name", "health", "busiest", "softirq", "rx", "tx", "interrupts", "dropped", "squeezed", "rtt"] as const;
export type SortBy = (typeof SORTS)[number];

export type FigureColumn = Exclude<keyof FleetFrame, "type" | "time_ms" | "node_id" | "health">;

const FleetSearchSchema = v.object({
  /** The filter's text. */
  q: param(filledText),
  /** kernel, driver or label:NAME. */
  group: param(filledText),
  color: param(v.picklist(COLORS)),
  view: param(v.literal("table")),
  /** A column, with - for descending. */
  sort: param(
    v.pipe(
      v.string(),
      v.check((sort) => SORTS.some((name) => name === sort.replace(/^-/, ""))),
    ),
  ),
});

/** The fleet page's part of the URL. */
export type FleetSearch = v.InferOutput<typeof FleetSearchSchema>;

export const validateFleetSearch = validated(FleetSearchSchema);
