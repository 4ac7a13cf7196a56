import type { ServiceClass } from "../types";

type Match = NonNullable<ServiceClass["match"]>;
export type Matcher = keyof Match;

/** A class as it is typed. key: its own for as long as the form is open, wherever it stands. */
export type ClassDraft = {
  key: string;
  name: string;
  target_percent: string;
  deadline_ms: string;
  histogram: string;
} & Record<Matcher, string>;

export const MATCHERS: Record<Matcher, { label: string; word: string; help: string }> = {
  commands: { label: "Commands", word: "command", help: "Without folder, for example nginx postgres*." },
  listens: { label: "Listening ports", word: "port", help: "TCP ports of its processes, for example 80 443." },
  units: { label: "Units", word: "unit", help: "Of systemd, for example nginx.service web@*." },
  cgroups: { label: "Cgroups", word: "cgroup", help: "Paths, for example /kubepods/*." },
  users: { label: "Users", word: "user", help: "Names or numbers, for example www-data." },
  clients: { label: "Client networks", word: "client", help: "Of the other end, for example 10.1.0.0/16." },
};
export const MATCHER_NAMES = Object.keys(MATCHERS) as Matcher[];

export const MOST_CLASSES = 16;
const MOST_PATTERNS = 32;
const NAME = /^[a-z0-9][a-z0-9_-]{0,31}$/;
const NETWORK = /^(\d{1,3}(\.\d{1,3}){3}(\/\d{1,2})?|[\da-f:.]*:[\da-f:.]*(\/\d{1,3})?)$/i;
const HISTOGRAM = /^http:\/\/(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d{1,5})?\/[^#\s]*#[a-z_:][a-z0-9_:]*$/i;

let drafts = 0;

export function classDraft(of: ServiceClass): ClassDraft {
  drafts += 1;
  const lists = MATCHER_NAMES.map((name) => [name, (of.match?.[name] ?? []).join(" ")]);
  return {
    key: `class ${drafts}`,
    name: of.name,
    target_percent: String(of.target_percent),
    deadline_ms: of.deadline_ms == null ? "" : String(of.deadline_ms),
    histogram: of.histogram ?? "",
    ...(Object.fromEntries(lists) as Record<Matcher, string>),
  };
}

/** One more class below the others, promised a little less than the last. */
export function nextClass(classes: ClassDraft[]): ClassDraft {
  const names = new Set(classes.map(({ name }) => name));
  let number = classes.length + 1;
  while (names.has(`class-${number}`)) number += 1;
  const last = Number(classes.at(-1)?.target_percent);
  return classDraft({ name: `class-${number}`, target_percent: last > 10 ? last - 10 : 10 });
}

/** The list with one of its items at another place. */
export function moved<T>(items: T[], from: number, to: number): T[] {
  const others = items.filter((_, index) => index !== from);
  others.splice(to, 0, ...items.slice(from, from + 1));
  return others;
}

const words = (line: string) => line.split(/[\s,]+/).filter(Boolean);

/** Reads the classes; what does not fit is told in wrong by its path, as `spec.classes[0].name`. */
export function readClasses(drafts: ClassDraft[], path: string, wrong: Record<string, string>): ServiceClass[] {
  if (drafts.length === 0) wrong[path] = "There must be a class.";
  return drafts.map((draft, index) => {
    const at = (field: keyof ClassDraft) => `${path}[${index}].${field}`;
    const number = (field: "target_percent" | "deadline_ms", max: number): number => {
      const value = draft[field].trim() === "" ? Number.NaN : Number(draft[field]);
      if (!(value > 0 && value <= max)) wrong[at(field)] = `More than 0, up to ${max.toLocaleString("en")}.`;
      return value;
    };
    const name = draft.name.trim();
    if (!NAME.test(name)) wrong[at("name")] = "Small letters, digits, - and _, up to 32.";
    else if (drafts.findIndex((other) => other.name.trim() === name) < index)
      wrong[at("name")] = "Another class has this name.";
    if (draft.histogram.trim() !== "" && !HISTOGRAM.test(draft.histogram.trim()))
      wrong[at("histogram")] = "A page of the node itself such as http://127.0.0.1:9100/metrics, # and a name.";
    const lists = Object.fromEntries(MATCHER_NAMES.map((matcher) => [matcher, words(draft[matcher])]));
    for (const matcher of MATCHER_NAMES)
      if ((lists[matcher]?.length ?? 0) > MOST_PATTERNS) wrong[at(matcher)] = `${MOST_PATTERNS} are the most.`;
    const ports = words(draft.listens).map(Number);
    if (ports.some((port) => !(Number.isInteger(port) && port >= 1 && port <= 65_535)))
      wrong[at("listens")] = "Ports are whole numbers from 1 to 65,535.";
    const bad = words(draft.clients).find((network) => !NETWORK.test(network));
    if (bad !== undefined) wrong[at("clients")] = `${bad} is not a network such as 10.1.0.0/16.`;
    return {
      name,
      target_percent: number("target_percent", 100),
      deadline_ms: draft.deadline_ms.trim() === "" ? null : number("deadline_ms", 600_000),
      match: { ...lists, listens: ports } as Match,
      histogram: draft.histogram.trim() || null,
    };
  });
}

/** What belongs to a class, in one line: `command nginx postgres* · port 80`; empty without any pattern. */
export function matchText(of: Record<Matcher, string>): string {
  return MATCHER_NAMES.filter((name) => words(of[name]).length > 0)
    .map((name) => `${MATCHERS[name].word} ${words(of[name]).join(" ")}`)
    .join(" · ");
}

/** A class as one line of a comparison: `1st · P 90 % · within 50 ms · command nginx`. */
export function classText(of: ServiceClass, index: number): string {
  const draft = classDraft(of);
  return [
    ordinal(index + 1),
    `P ${draft.target_percent} %`,
    draft.deadline_ms && `within ${draft.deadline_ms} ms`,
    matchText(draft),
    draft.histogram && `histogram ${draft.histogram}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

export function ordinal(place: number): string {
  const last = place % 100 > 10 && place % 100 < 14 ? 0 : place % 10;
  return `${place}${["th", "st", "nd", "rd"][last] ?? "th"}`;
}
