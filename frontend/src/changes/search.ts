import * as v from "valibot";
import { filledText, param, positiveInteger, timeMs, validated, withRange } from "../lib/searchParams";

export const SPANS = { "1h": 3_600_000, "24h": 86_400_000, "7d": 7 * 86_400_000 } as const;
export type Span = keyof typeof SPANS;
export const DEFAULT_SPAN = "24h" satisfies Span;

export const STATES = ["unconfirmed", "confirmed", "undone", "rolled_back", "failed"] as const;
export const ORIGINS = ["people", "policies", "experiments"] as const;

/** Filters by kind of setting: their names, and the keys of each. */
export const SETTINGS = {
  "interrupt affinity": "irq/*",
  coalescing: "netdev/*/coalesce/*",
  RPS: "netdev/*/rps",
  XPS: "netdev/*/xps",
  rings: "netdev/*/ring/*",
  "other NIC settings": "netdev/*",
  tasks: "task/*",
  cgroups: "cgroup/*",
  kernel: "kernel/*",
} as const;

const ChangesSearchSchema = v.object({
  /** A past range, in place of the span. */
  from: param(timeMs),
  to: param(timeMs),
  span: param(v.picklist(["1h", "7d"])),
  node: param(positiveInteger),
  /** `people`, `policies`, `experiments`, or an author by name. */
  by: param(filledText),
  /** A setting's key; * stands for any text. */
  setting: param(filledText),
  state: param(v.picklist(STATES)),
  q: param(filledText),
  /** Moves of policies one by one, instead of grouped by policy and hour. */
  moves: param(v.literal("each")),
  /** The unfolded change. */
  change: param(v.pipe(v.string(), v.uuid())),
  /** What the panel previews: the undo of a change by its id, or `node:5` for everything on a node, or `choose`. */
  undo: param(v.pipe(v.string(), v.regex(/^([0-9a-f-]{36}|node:\d+|choose)$/))),
  /** Whether the dialog that stops enforcement is open. */
  stop: param(v.literal("ask")),
});

/** The Changes page's part of the URL. */
export type ChangesSearch = v.InferOutput<typeof ChangesSearchSchema>;

export const validateChangesSearch = (search: Record<string, unknown>): ChangesSearch =>
  withRange<ChangesSearch>((lengthMs) => lengthMs > 0)(validated(ChangesSearchSchema)(search));

/** The query parameters of the log of stops that a search stands for, at a time; null if it leaves out all stops. */
export function stopLogQuery(search: ChangesSearch, nowMs: number) {
  const { node_id, origin, by, setting, state, text, from_time, to_time } = logQuery(search, nowMs);
  const isOthers = origin === "policies" || origin === "experiments";
  return isOthers || setting !== undefined || state !== undefined ? null : { node_id, by, text, from_time, to_time };
}

/** The query parameters of the log that a search stands for, at a time. */
export function logQuery(search: ChangesSearch, nowMs: number) {
  const { from, to, by, setting, state, q, node } = search;
  const origin = ORIGINS.find((one) => one === by);
  return {
    node_id: node,
    origin,
    by: origin === undefined ? by : undefined,
    setting,
    state,
    text: q,
    from_time: new Date(from ?? nowMs - SPANS[search.span ?? DEFAULT_SPAN]).toISOString(),
    to_time: to === undefined ? undefined : new Date(to).toISOString(),
    grouped: search.moves === undefined,
  };
}
