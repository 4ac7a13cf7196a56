import * as v from "valibot";
import { BOUNDS } from "../api/constants";
import { numberWithin, param, timeMs, validated, withRange } from "../lib/searchParams";
import { HEAT_SHARES } from "./cpuShares";
import { TASK_COLUMNS } from "./numa/numaTasks";

/** Lengths of the live window in seconds. */
export const SPANS = [60, 300, 3600, 86_400] as const;

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
    /** The share that the heatmap's colour shows; busy when absent. */
    share: param(v.picklist(HEAT_SHARES)),
    /** The order of the heatmap's rows: by structure when absent. */
    order: param(v.literal("load")),
    /** The chart that is shown as a table. */
    tab: param(v.picklist(["cores", "irqs", "coalescing"])),
    /** The network device whose coalescing is shown; that of the panel takes precedence. */
    nic: param(v.pipe(v.string(), v.regex(/^[^\s/]{1,256}$/))),
    /** The figure that the coalescing chart's colour shows; interrupts per second when absent. */
    colour: param(v.literal("latency")),
    /** Selected values of rx-usecs and rx-frames: `54x32`, or `54` where there are no frames. */
    point: param(v.pipe(v.string(), v.regex(/^\d{1,6}(x\d{1,6})?$/))),
    /** The column by which the processes of the NUMA section are sorted, descending with a minus; largest remote memory first when absent. */
    tasks: param(v.picklist(TASK_COLUMNS.flatMap((column) => [column, `-${column}`] as const))),
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

export const validateNodeSearch = validated(NodeSearchSchema);
