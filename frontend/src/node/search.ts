import { HEAT_SHARES, type HeatShare } from "./cpuShares";

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
  tab?: "cores" | "irqs" | "coalescing";
  /** The network device whose coalescing is in sight; that of the panel goes first. */
  nic?: string;
  /** What the colour of the coalescing picture means; interrupts a second when absent. */
  colour?: "latency";
  /** Values of rx-usecs and rx-frames that were picked to be tried: `54x32`, or `54` where there are no frames. */
  point?: string;
  /** Supposed traffic, in the place of what is measured: packets a second and bytes a frame. */
  pps?: number;
  frame?: number;
  /** The added latency that is allowed, in µs, in the place of the policies' bound. */
  bound?: number;
};

/** A number within bounds, or nothing. */
function within(value: unknown, least: number, most: number): number | undefined {
  const parsed = value === undefined || value === "" ? Number.NaN : Number(value);
  return parsed >= least && parsed <= most ? parsed : undefined;
}

const TABS = ["cores", "irqs", "coalescing"] as const;
const NETDEV = /^[^\s/]{1,256}$/;

/** What may be supposed, as the backend takes it. */
export const BOUNDS = { pps: [1, 1e9], frame: [60, 65_536], bound: [1, 1e6] } as const;

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
    tab: TABS.find((tab) => tab === search.tab),
    nic: typeof search.nic === "string" && NETDEV.test(search.nic) ? search.nic : undefined,
    colour: search.colour === "latency" ? "latency" : undefined,
    point: typeof search.point === "string" && /^\d{1,6}(x\d{1,6})?$/.test(search.point) ? search.point : undefined,
    pps: within(search.pps, ...BOUNDS.pps),
    frame: within(search.frame, ...BOUNDS.frame),
    bound: within(search.bound, ...BOUNDS.bound),
  };
}
