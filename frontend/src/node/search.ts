import { HEAT_SHARES, type HeatShare } from "./shares";

/** The spans of a live window in seconds. */
export const SPANS = [60, 300, 3600, 86_400] as const;
export type Span = (typeof SPANS)[number];

/** The node page's part of the URL: what is looked at and what is selected. */
export type NodeSearch = {
  /** A past or paused range in Unix milliseconds; absent while the page follows the present. */
  from?: number;
  to?: number;
  /** The live window's length in seconds; 300 when absent. */
  span?: Span;
  /** What the side panel shows: `irq:41`, `cpu:3` or `nic:eth0`. */
  sel?: string;
  /** What the heatmap's colour means; busy when absent. */
  share?: HeatShare;
  /** The heatmap's lines: by structure when absent. */
  order?: "load";
  /** Which picture is shown as a table. */
  tab?: "cores" | "irqs";
};

/** Search parameters arrive as strings; what does not fit is left out. */
export function validateNodeSearch(search: Record<string, unknown>): NodeSearch {
  const [from, to] = [Number(search.from ?? Number.NaN), Number(search.to ?? Number.NaN)];
  const range = Number.isFinite(from) && Number.isFinite(to) && from > 0 && to - from >= 1000;
  return {
    from: range ? from : undefined,
    to: range ? to : undefined,
    span: SPANS.find((span) => String(span) === String(search.span)),
    sel: typeof search.sel === "string" && /^(irq:\d+|cpu:\d+|nic:.+)$/.test(search.sel) ? search.sel : undefined,
    share: HEAT_SHARES.find((share) => share === search.share),
    order: search.order === "load" ? "load" : undefined,
    tab: search.tab === "cores" || search.tab === "irqs" ? search.tab : undefined,
  };
}
