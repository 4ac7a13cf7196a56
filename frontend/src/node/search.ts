import * as v from "valibot";
import { BOUNDS, MAX_CPUS } from "../api/constants";
import { CHART_NAMES } from "../lib/metrics";
import { filledText, numberWithin, param, timeMs, validated, withRange } from "../lib/searchParams";
import { HEAT_SHARES } from "./cpuShares";
import { TASK_COLUMNS } from "./numa/numaTasks";
import { FLOW_COLUMNS } from "./tasks/flowRows";

/** Lengths of the live window in seconds. */
export const SPANS = [60, 300, 3600, 86_400] as const;

/** The tabs below the charts and the heatmap. */
export const TABS = ["interrupts", "numa", "coalescing", "tasks", "policies", "history"] as const;
export type Tab = (typeof TABS)[number];

/** Schemas of the assumed traffic and of the allowed latency, by search parameter. */
export const TRAFFIC_SCHEMAS = {
  pps: BOUNDS.CoalescingQuery.packets_per_s,
  frame: BOUNDS.CoalescingQuery.frame_bytes,
  bound: BOUNDS.CoalescingPolicy.max_added_us,
} as const;

const LEAST_RANGE_MS = 1000;

const NodeSearchSchema = v.pipe(
  v.object({
    /** A past or paused range in Unix milliseconds; absent while the page follows the present. */
    from: param(timeMs),
    to: param(timeMs),
    /** The live window's length in seconds; 300 when absent. */
    span: param(
      v.pipe(
        v.unknown(),
        v.transform((value) => SPANS.find((span) => String(span) === String(value))),
        v.picklist(SPANS),
      ),
    ),
    /**
     * The side panel's subject: `irq:41`, `cpu:3`, `nic:eth0`, or `task:812:5551` with PID and start time in ticks. A
     * setting's key has no start time: `task:812` is the process with that PID now, and becomes `task:812:5551`.
     */
    sel: param(v.pipe(v.string(), v.regex(/^(irq:\d+|cpu:\d+|nic:.+|task:\d+(:\d+)?)$/))),
    /** The hot CPU whose suggested move is previewed. */
    hot: param(numberWithin({ minimum: 0, maximum: MAX_CPUS - 1 })),
    /** Text by which the network tasks are searched, and the column by which they are sorted; most traffic first when absent. */
    find: param(filledText),
    flows: param(v.picklist(FLOW_COLUMNS.flatMap((column) => [column, `-${column}`] as const))),
    /** The share that the heatmap's colour shows; busy when absent. */
    share: param(v.picklist(HEAT_SHARES)),
    /** The order of the heatmap's rows: by structure when absent. */
    order: param(v.literal("load")),
    /** The open tab: what the other parameters need when absent, see shownTab. */
    tab: param(v.picklist(TABS)),
    /** The numbers of the heatmap's open groups, `0,3` or `none`; the one with the hottest CPU when absent. */
    open: param(v.pipe(v.unknown(), v.transform(String), v.regex(/^(none|\d{1,4}(,\d{1,4})*)$/))),
    /** The chart that is shown large, with a line for each NIC, interrupt or CPU. */
    chart: param(v.picklist(CHART_NAMES)),
    /** The chart that is shown as a table. */
    table: param(v.picklist(["cores", "irqs", "coalescing"])),
    /** The network device whose coalescing is shown; that of the panel takes precedence. */
    nic: param(v.pipe(v.string(), v.regex(/^[^\s/]{1,256}$/))),
    /** The figure that the coalescing chart's colour shows; interrupts per second when absent. */
    colour: param(v.literal("latency")),
    /** Selected values of rx-usecs and rx-frames: `54x32`, or `54` where there are no frames. */
    point: param(v.pipe(v.string(), v.regex(/^\d{1,6}(x\d{1,6})?$/))),
    /** The column by which the processes of the NUMA section are sorted, descending with a minus; largest remote memory first when absent. */
    tasks: param(v.picklist(TASK_COLUMNS.flatMap((column) => [column, `-${column}`] as const))),
    /** Text by which they are filtered. */
    process: param(filledText),
    /** Assumed traffic instead of the measured: packets per second and bytes per frame. */
    pps: param(numberWithin(TRAFFIC_SCHEMAS.pps)),
    frame: param(numberWithin(TRAFFIC_SCHEMAS.frame)),
    /** The allowed added latency in µs, instead of the policies' bound. */
    bound: param(numberWithin(TRAFFIC_SCHEMAS.bound)),
  }),
  v.transform(withRange((lengthMs) => lengthMs >= LEAST_RANGE_MS)),
);

/** The node page's part of the URL: the range, the selection and how both are shown. */
export type NodeSearch = v.InferOutput<typeof NodeSearchSchema>;

const validate = validated(NodeSearchSchema);

/** The parameters of a link; those of links from before the tabs, where `tab` was the chart shown as a table, too. */
export function validateNodeSearch(search: Record<string, unknown>): NodeSearch {
  const { tab } = search;
  if (tab === "cores") return validate({ ...search, tab: undefined, table: "cores" });
  if (tab === "irqs") return validate({ ...search, tab: "interrupts", table: "irqs" });
  return validate(search);
}

/** The open tab: the one that a link names, else the one that shows what its other parameters choose. */
export function shownTab({ tab, sel, nic, colour, point, pps, frame, bound, table, tasks, process }: NodeSearch): Tab {
  if (tab !== undefined) return tab;
  const coalescing = [nic, colour, point, pps, frame, bound].some((value) => value !== undefined);
  if (coalescing || table === "coalescing" || sel?.startsWith("nic:")) return "coalescing";
  return tasks === undefined && process === undefined ? "interrupts" : "numa";
}
