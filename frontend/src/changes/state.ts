import { duration } from "../lib/format";
import { clock, dateTime } from "../lib/time";
import { differenceOf, figureLabel, headlines } from "./observation";
import type { Change, LogEntry } from "./queries";

export type Tone = "change" | "ok" | "warn" | "bad" | "muted";
export type Words = { text: string; tone: Tone };

/** Whether a change awaits its end: applying, or applied and unconfirmed. */
export const isPending = ({ state }: Change): boolean => state === "applying" || state === "unconfirmed";

const STATUS: Record<Change["status"], Words> = {
  applying: { text: "applying", tone: "change" },
  unconfirmed: { text: "unconfirmed", tone: "change" },
  confirmed: { text: "confirmed", tone: "ok" },
  undone: { text: "undone", tone: "muted" },
  rolled_back: { text: "rolled back", tone: "warn" },
  failed: { text: "failed", tone: "bad" },
};

/** What became of a change, in the same words everywhere. What a user or an experiment rolled back needs no attention. */
export function statusWords({ status, ended_by }: Change): Words {
  return status === "rolled_back" && ended_by === "user" ? { ...STATUS[status], tone: "muted" } : STATUS[status];
}

type Statuses = LogEntry["statuses"];

/** `12 confirmed, 2 rolled back` */
const countsOf = (statuses: Statuses): [Change["status"], number][] =>
  (Object.keys(STATUS) as Change["status"][]).flatMap((status) => {
    const changes = statuses[status] ?? 0;
    return changes > 0 ? [[status, changes]] : [];
  });

/** What became of the changes of an entry: of one, or of all those of a group alike; else `mixed`. */
export function entryStatusWords({ change, statuses }: LogEntry): Words {
  return countsOf(statuses).length === 1 ? statusWords(change) : { text: "mixed", tone: "muted" };
}

/** What was seen after the changes of an entry; of a group, how many of them became what. */
export function entryAfterWords({ change, changes, statuses }: LogEntry): Words | null {
  if (changes === 1) return afterWords(change);
  const counts = countsOf(statuses);
  if (counts.length === 1) return null;
  const tone = statuses.failed ? "bad" : statuses.rolled_back && change.experiment_id === null ? "warn" : "muted";
  return { text: counts.map(([status, count]) => `${count} ${STATUS[status].text}`).join(", "), tone };
}

/** Whether a user rolled a change back, so that it can be made again. An experiment rolls its own back after each run. */
export const isRedoable = ({ state, ended_by, experiment_id }: Change): boolean =>
  state === "rolled_back" && ended_by === "user" && experiment_id === null;

/** `undone by ann, 14:02:11`; null for a change that was not undone. */
export function undoneText({ undone, created_at }: Change): string | null {
  if (undone === null) return null;
  const [at, since] = [Date.parse(undone.at), Date.parse(created_at)];
  const time = new Date(at).toDateString() === new Date(since).toDateString() ? clock(at) : dateTime(at);
  return `undone by ${undone.by}, ${time}`;
}

/** How a change ended if it did not last: why it failed or was rolled back, or who undid it. */
function endWords(change: Change): Words | null {
  const { status, ended_by, ended_at, steps, confirm_timeout_s, experiment_id } = change;
  const last = steps.at(-1)?.sentence ?? "";
  if (status === "failed") return { text: last, tone: "bad" };
  const undone = undoneText(change);
  if (undone !== null) return { text: undone, tone: "muted" };
  if (status !== "rolled_back") return null;
  if (ended_by === "timeout") return { text: `not confirmed in ${duration(confirm_timeout_s)}`, tone: "muted" };
  if (ended_by === "user") {
    const at = ended_at === null ? "" : `, ${clock(Date.parse(ended_at))}`;
    return { text: `${experiment_id === null ? "by a user" : "after its run"}${at}`, tone: "muted" };
  }
  return { text: last, tone: ended_by === "guardrail" ? "bad" : "muted" };
}

/** What was seen after a change, and how it ended if it did not last; null if there is nothing to say. */
export function afterWords(change: Change): Words | null {
  const [observed, end] = [observedWords(change), endWords(change)];
  if (observed === null || end === null) return observed ?? end;
  return { text: `${observed.text} · ${end.text}`, tone: end.tone === "bad" ? "bad" : observed.tone };
}

const MAX_OBSERVED = 2;

/** The figures that moved, or all differences, muted, where the usual ones are unknown; null without figures. */
function observedWords({ observation }: Change): Words | null {
  if (observation === null || observation.figures.length === 0) return null;
  const figures = headlines(observation.figures);
  const isUsualKnown = figures.some(({ has_moved }) => has_moved !== null);
  const shown = figures
    .filter(({ has_moved }) => has_moved || !isUsualKnown)
    .slice(0, MAX_OBSERVED)
    .flatMap((figure) => {
      const difference = differenceOf(figure);
      return difference === null ? [] : [{ figure, difference }];
    });
  if (shown.length === 0) return isUsualKnown ? { text: "≈ usual", tone: "muted" } : null;
  const tones = shown.map(({ difference }) => difference.tone);
  return {
    text: shown.map(({ figure, difference }) => `${figureLabel(figure)} ${difference.text}`).join(", "),
    tone: tones.includes("bad") ? "bad" : tones.includes("ok") ? "ok" : "muted",
  };
}
