import type { FleetFrame } from "../live/frames";

/** Figures of the fleet frame that the map can be coloured by. */
export const COLORS = ["softirq", "busiest", "drops", "rtt"] as const;
export type ColorBy = (typeof COLORS)[number];

export const SORTS = [
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
] as const;
export type SortBy = (typeof SORTS)[number];

export type FigureColumn = Exclude<keyof FleetFrame, "type" | "time_ms" | "node_id" | "health">;

/** The fleet page's part of the URL. group: kernel, driver or label:NAME. sort: a column, with - for downwards. */
export type FleetSearch = {
  q?: string;
  group?: string;
  color?: ColorBy;
  view?: "table";
  sort?: string;
};

export function validateFleetSearch(search: Record<string, unknown>): FleetSearch {
  const text = (value: unknown) => (typeof value === "string" && value !== "" ? value : undefined);
  const sort = text(search.sort);
  return {
    q: text(search.q),
    group: text(search.group),
    color: COLORS.find((color) => color === search.color),
    view: search.view === "table" ? "table" : undefined,
    sort: SORTS.some((name) => name === sort?.replace(/^-/, "")) ? sort : undefined,
  };
}
