import type { Schemas } from "../api/client";
import { formatCount } from "../lib/format";
import { labelsText } from "../lib/labels";
import type { LogEntry } from "./queries";
import type { Words } from "./state";

export type StopEvent = Schemas["StopEvent"];

/** A row of the log: changes, or the beginning or end of a stop of enforcement. */
export type LogRow = LogEntry | StopEvent;

export const isStop = (row: LogRow): row is StopEvent => "action" in row;
export const timeOf = (row: LogRow): number => Date.parse(isStop(row) ? row.at : row.change.created_at);

/** Changes and stops, newest first. isLast: whether no older changes follow; until then, older stops wait for them. */
export function withStops(entries: LogEntry[], stops: StopEvent[], isLast: boolean): LogRow[] {
  const oldest = entries.at(-1);
  const since = isLast || oldest === undefined ? Number.NEGATIVE_INFINITY : timeOf(oldest);
  const rows: LogRow[] = [...entries, ...stops.filter((stop) => timeOf(stop) >= since)];
  return rows.sort((a, b) => timeOf(b) - timeOf(a));
}

const WHAT = {
  stop: "enforcement stopped",
  restore: "everything restored",
  lift: "stop lifted",
} satisfies Record<StopEvent["action"], string>;

/** `enforcement stopped` and `12 nodes, 4,310 settings kept`. */
export function stopWords({ action, nodes, settings }: StopEvent): { what: string; values: string } {
  const reach = nodes === null ? null : formatCount(nodes, "node");
  const kept = settings === null || settings === 0 ? null : formatCount(settings, "setting");
  const end = { stop: " kept", restore: " as found", lift: "" };
  const shown = action === "lift" ? [reach] : [reach, kept === null ? null : `${kept}${end[action]}`];
  return { what: WHAT[action], values: shown.filter((part) => part !== null).join(", ") };
}

/** The nodes of a stop: `all nodes`, or its labels. */
export const scopeText = ({ labels }: StopEvent): string => labelsText(labels) || "all nodes";

export function stopState({ action, in_force }: StopEvent): Words {
  if (action === "lift") return { text: "lifted", tone: "ok" };
  return in_force ? { text: "in force", tone: "bad" } : { text: "ended", tone: "muted" };
}
