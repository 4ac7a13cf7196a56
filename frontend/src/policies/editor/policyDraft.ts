import { fieldsOf, inputOf, labelOf } from "../../forms/schema";
import { type Errors, readField, readObject, type Values, valuesOf, valueText } from "../../forms/values";
import { GUARDRAIL_METRICS } from "../../lib/metrics";
import { guardrailSchema, kindSchema, policySchema } from "../kinds";
import type { Kind, PolicyBody, Spec } from "../types";
import { type ClassDraft, classDraft, readClasses } from "./classDraft";

/** The content of the policy form. values: input texts by field path; classes: the service classes, if the kind has them. */
export type Draft = { kind: Kind; values: Values; classes: ClassDraft[] };

/** A valid policy body, or the error messages of invalid fields by path. */
export type Reading = { body: PolicyBody; wrong: null } | { body: null; wrong: Errors };

const CLASSES = "service-classes";
/** Fields of the body that are read and shown separately. */
const SEPARATE = ["spec", "guardrails"];

/** A specification as input texts and service classes; undefined: the backend's defaults. */
function specDraft(kind: Kind, spec?: Spec): Pick<Draft, "values" | "classes"> {
  const schema = kindSchema(kind);
  const classes = fieldsOf(schema)
    .filter(([, field]) => field.format === CLASSES)
    .flatMap(([name, field]) => (spec as Record<string, unknown> | undefined)?.[name] ?? field.examples?.[0] ?? []);
  return {
    values: valuesOf(schema, spec, "spec"),
    classes: (classes as Parameters<typeof classDraft>[0][]).map(classDraft),
  };
}

function bodyValues(body?: PolicyBody): Values {
  const values = valuesOf(policySchema(), body);
  return Object.fromEntries(Object.entries(values).filter(([path]) => !SEPARATE.includes(path)));
}

/** An empty form for a kind of policy, with the backend's defaults. */
export function newDraft(kind: Kind): Draft {
  const { values, classes } = specDraft(kind);
  const { name: _, ...body } = bodyValues();
  return { kind, classes, values: { ...body, ...values } };
}

/** The draft with these values in the fields that it has; undefined leaves a field as it is. */
export function prefilled(draft: Draft, values: Record<string, string | undefined>): Draft {
  const known = Object.entries(values).filter(
    (entry): entry is [string, string] => entry[1] !== undefined && entry[0] in draft.values,
  );
  return { ...draft, values: { ...draft.values, ...Object.fromEntries(known) } };
}

/** The form filled from a policy's body. */
export function draftOf(body: PolicyBody): Draft {
  const { values, classes } = specDraft(body.spec.type, body.spec);
  const bounds = body.guardrails.map(({ metric, max }) => [
    `guardrails.${metric}`,
    valueText(guardrailSchema(metric), max),
  ]);
  return {
    kind: body.spec.type,
    classes,
    values: { ...bodyValues(body), ...values, ...Object.fromEntries(bounds) },
  };
}

/** The draft after a change of its kind: its specification gets the new kind's defaults. */
export function withKind(draft: Draft, kind: Kind): Draft {
  const { values, classes } = specDraft(kind);
  const others = Object.entries(draft.values).filter(([path]) => !path.startsWith("spec."));
  return { kind, classes, values: { ...Object.fromEntries(others), ...values } };
}

function readSpec({ kind, values, classes }: Draft, wrong: Errors): Spec {
  const spec = fieldsOf(kindSchema(kind)).map(([name, field]) => {
    const path = `spec.${name}`;
    return [name, field.format === CLASSES ? readClasses(classes, path, wrong) : readField(field, path, values, wrong)];
  });
  return { type: kind, ...Object.fromEntries(spec) } as Spec;
}

/** Parses the form into a policy's body, or into the error messages of its fields. */
export function readBody(draft: Draft): Reading {
  const wrong: Errors = {};
  const others = readObject(policySchema(), "", draft.values, wrong, SEPARATE);
  const spec = readSpec(draft, wrong);
  const guardrails = GUARDRAIL_METRICS.filter((metric) => draft.values[`guardrails.${metric}`]?.trim()).map(
    (metric) => ({ metric, max: readField(guardrailSchema(metric), `guardrails.${metric}`, draft.values, wrong) }),
  );
  if (Object.keys(wrong).length > 0) return { body: null, wrong };
  return { wrong: null, body: { ...others, spec, guardrails } as PolicyBody };
}

/** The form's node selector; null while it is invalid. */
export function readSelector(draft: Draft): PolicyBody["selector"] | null {
  const wrong: Errors = {};
  const selector = readObject(policySchema("selector"), "selector", draft.values, wrong);
  return Object.keys(wrong).length > 0 ? null : (selector as PolicyBody["selector"]);
}

/** Shares are compared as such, not in percent. */
const SHARE_SCALE = 100;

/** The factor from a specification's stored number to the compared one: 1 / 1 MiB for a size that is shown in MiB. */
export function comparedScale(path: string, kinds: Kind[]): number {
  const found = kinds.flatMap((kind) => fieldsOf(kindSchema(kind))).find(([name]) => path === `spec.${name}`)?.[1];
  return found?.scale === undefined || found.scale === SHARE_SCALE ? 1 : found.scale;
}

/** A field's label in the form by its path: “Load threshold, %” for `spec.act_percent`. kinds: those of the compared versions. */
export function fieldLabel(path: string, kinds: Kind[]): string {
  const [part = "", name = "", item] = path.split(/[.[\]]+/);
  const field = policySchema().properties?.[part];
  if (part === "spec") {
    const [, found] = kinds.flatMap((kind) => fieldsOf(kindSchema(kind))).find(([other]) => other === name) ?? [];
    if (found?.format === CLASSES && item) return `Class ${item}`;
    if (found === undefined) return path;
    if (inputOf(found) === "pairs" && item) return `${found.title} ${path.split(".").slice(2).join(".")}`;
    return found.scale === SHARE_SCALE ? `${found.title}, share` : labelOf(found, name);
  }
  if (field === undefined) return path;
  if (inputOf(field) !== "group" || name === "") return labelOf(field, part);
  const inner = field.properties?.[name];
  if (inner === undefined) return path;
  const label =
    inputOf(inner) === "labels" && item ? `${inner.title} ${path.split(".").slice(2).join(".")}` : labelOf(inner);
  return `${field.title}: ${label}`;
}
