import { significant } from "../../lib/format";
import { classText } from "../editor/classDraft";
import { comparedScale, fieldLabel } from "../editor/policyDraft";
import { guardrailText, kindNames, policySchema } from "../kinds";
import type { Kind, PolicyBody, ServiceClass } from "../types";

export type Difference = { path: string; was: string | null; becomes: string | null };
/** One line of the comparison of two versions: a field with its old and its new value. */
export type DiffLine = {
  path: string;
  name: string;
  was: string | null;
  becomes: string | null;
  kind: "added" | "removed" | "changed";
};

/** The fields in which two versions differ, with the form's labels in the form's order. */
export function diffLines(differences: Difference[], kinds: Kind[] = kindNames()): DiffLine[] {
  return differences
    .flatMap((difference) => (difference.path === "spec.classes" ? classLines(difference) : [difference]))
    .map(({ path, was, becomes }) => {
      const scale = comparedScale(path, kinds);
      return { path, was: valueText(path, was, scale), becomes: valueText(path, becomes, scale) };
    })
    .filter(({ was, becomes }) => was !== becomes)
    .map((difference) => ({
      ...difference,
      name: fieldLabel(difference.path, kinds),
      kind:
        difference.was === null
          ? ("added" as const)
          : difference.becomes === null
            ? ("removed" as const)
            : ("changed" as const),
    }))
    .sort((a, b) => place(a.path) - place(b.path) || fieldOf(a.path).localeCompare(fieldOf(b.path), "en"));
}

/** Splits the difference of two lists of service classes into one difference per class name. */
function classLines({ path, was, becomes }: Difference): Difference[] {
  const [before, after] = [was, becomes].map((json) => {
    const list: ServiceClass[] = json === null ? [] : JSON.parse(json);
    return new Map(list.map((one, index) => [one.name, classText(one, index)]));
  }) as [Map<string, string>, Map<string, string>];
  return [...new Set([...after.keys(), ...before.keys()])].map((name) => ({
    path: `${path}[${name}]`,
    was: before.get(name) ?? null,
    becomes: after.get(name) ?? null,
  }));
}

/** A field's JSON value as text: lists as words, guardrails as `RTT p99 ≤ 500 µs`; null if empty. */
export function valueText(path: string, value: string | null, scale = 1): string | null {
  if (value === null || value === "" || value === "[]" || value === "{}") return null;
  let parsed: unknown;
  try {
    parsed = JSON.parse(value);
  } catch {
    return value; // text
  }
  if (typeof parsed === "number") return significantOrWhole(parsed * scale);
  if (typeof parsed === "boolean") return parsed ? "yes" : "no";
  if (!Array.isArray(parsed)) return value;
  if (path !== "guardrails") return parsed.join(" ");
  return (parsed as PolicyBody["guardrails"]).map(guardrailText).join(", ");
}

const significantOrWhole = (value: number) => (Number.isInteger(value) ? String(value) : significant(value));

/** A path without the item of a list: `spec.classes` for `spec.classes[gold]`. */
const fieldOf = (path: string) => path.split("[")[0] ?? path;

function place(path: string): number {
  const parts = Object.keys(policySchema().properties ?? {});
  const at = parts.indexOf(path.split(/[.[]/)[0] ?? "");
  return at === -1 ? parts.length : at;
}
