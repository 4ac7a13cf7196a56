import { fieldAt, fieldsOf, labelOf, type Schema } from "../../forms/schema";
import { type Errors, readObject, splitWords, type Values, valuesOf } from "../../forms/values";
import { kindSchema } from "../kinds";
import type { ServiceClass } from "../types";

/** A service class in the form. key: its identity while the form is open; values: input texts by field path such as `match.commands`. */
export type ClassDraft = { key: string; values: Values };

export const classesSchema = (): Schema => fieldAt(kindSchema("service-class"), "classes");
export const classSchema = (): Schema => classesSchema().items ?? {};
const matchFields = () => fieldsOf(fieldAt(classSchema(), "match"));

const NETWORK = /^(\d{1,3}(\.\d{1,3}){3}(\/\d{1,2})?|[\da-f:.]*:[\da-f:.]*(\/\d{1,3})?)$/i;

let drafts = 0;

export function classDraft(of: Pick<ServiceClass, "name" | "target_percent"> & Partial<ServiceClass>): ClassDraft {
  drafts += 1;
  return { key: `class ${drafts}`, values: valuesOf(classSchema(), of) };
}

/** A new class to append, with a free name and a target 10 points below the last one's. */
export function nextClass(classes: ClassDraft[]): ClassDraft {
  const names = new Set(classes.map(({ values }) => values.name));
  let number = classes.length + 1;
  while (names.has(`class-${number}`)) number += 1;
  const last = Number(classes.at(-1)?.values.target_percent);
  return classDraft({ name: `class-${number}`, target_percent: last > 10 ? last - 10 : 10 });
}

/** A copy of a list with the item at index `from` moved to index `to`. */
export function moveItem<T>(items: T[], from: number, to: number): T[] {
  const others = items.filter((_, index) => index !== from);
  others.splice(to, 0, ...items.slice(from, from + 1));
  return others;
}

/** Parses the classes; adds error messages by path, such as `spec.classes[0].match.clients`. */
export function readClasses(list: ClassDraft[], path: string, errors: Errors): ServiceClass[] {
  const { minItems = 0, maxItems = Number.POSITIVE_INFINITY } = classesSchema();
  if (list.length < minItems) errors[path] = "Add a class.";
  if (list.length > maxItems) errors[path] = `At most ${maxItems} classes.`;
  return list.map(({ values }, index) => {
    const wrong: Errors = {};
    const read = readObject(classSchema(), "", values, wrong) as ServiceClass;
    if (list.findIndex((other) => other.values.name?.trim() === read.name) < index)
      wrong.name ??= "Another class has this name.";
    const bad = read.match?.clients.find((network) => !NETWORK.test(network));
    if (bad !== undefined) wrong["match.clients"] ??= `${bad} is not a network such as 10.1.0.0/16.`;
    for (const [field, sentence] of Object.entries(wrong)) errors[`${path}[${index}].${field}`] = sentence;
    return read;
  });
}

/** The patterns that a class matches in one line: `commands nginx postgres* · listening ports 80`; empty without patterns. */
export function matchText({ values }: ClassDraft): string {
  return matchFields()
    .map(([name, field]) => ({
      label: labelOf(field, name).toLowerCase(),
      words: splitWords(values[`match.${name}`] ?? ""),
    }))
    .filter(({ words }) => words.length > 0)
    .map(({ label, words }) => `${label} ${words.join(" ")}`)
    .join(" · ");
}

/** A class as one line of a comparison: `1st · target 90 % · within 50 ms · commands nginx`. */
export function classText(of: ServiceClass, index: number): string {
  const draft = classDraft(of);
  const { target_percent, deadline_ms, histogram } = draft.values;
  return [
    ordinal(index + 1),
    `target ${target_percent} %`,
    deadline_ms && `within ${deadline_ms} ms`,
    matchText(draft),
    histogram && `histogram ${histogram}`,
  ]
    .filter(Boolean)
    .join(" · ");
}

export function ordinal(place: number): string {
  const last = place % 100 > 10 && place % 100 < 14 ? 0 : place % 10;
  return `${place}${["th", "st", "nd", "rd"][last] ?? "th"}`;
}
