/** The part of JSON Schema that the backend publishes for forms, with the keywords of coresteer_core.schema. */
export type Schema = {
  type?: string;
  title?: string;
  description?: string;
  default?: unknown;
  examples?: unknown[];
  enum?: string[];
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minLength?: number;
  maxLength?: number;
  pattern?: string;
  minItems?: number;
  maxItems?: number;
  items?: Schema;
  properties?: Record<string, Schema>;
  /** The schema of all values of an object with any names. */
  additionalProperties?: Schema | boolean;
  maxProperties?: number;
  required?: string[];
  anyOf?: Schema[];
  unit?: string;
  placeholder?: string;
  group?: string;
  /** The factor from the stored to the displayed number: 100 for a share that is shown in percent. */
  scale?: number;
  format?: string;
  enum_labels?: Record<string, string>;
  enum_descriptions?: Record<string, string>;
  /** For a workload: the metrics that may be the primary metric, the default first. */
  metrics?: string[];
  /** Named values of some of the object's fields. */
  presets?: Preset[];
};

export type Preset = { label: string; summary: string; values: Record<string, number> };

export type Field = [name: string, schema: Schema];

/** The schema of the field at a path such as `damping.dwell_s`. Throws for an unknown path. */
export function fieldAt(schema: Schema, path: string): Schema {
  const found = path.split(".").reduce<Schema | undefined>((at, name) => at?.properties?.[name], schema);
  if (found === undefined) throw new Error(`The backend's schema has no field ${path}.`);
  return found;
}

const isTag = ([name, { enum: values }]: Field) => name === "type" && values?.length === 1;

/** The fields of an object in declaration order, without the field `type` that tags a member of a union. */
export function fieldsOf(schema: Schema): Field[] {
  return Object.entries(schema.properties ?? {}).filter((field) => !isTag(field));
}

/** The members of a union of tagged objects, by the value of their field `type`. */
export function membersOf(schema: Schema): Record<string, Schema> {
  const tagged = (schema.anyOf ?? []).flatMap((member): Field[] => {
    const tag = member.properties?.type?.enum?.[0];
    return tag === undefined ? [] : [[tag, member]];
  });
  return Object.fromEntries(tagged);
}

/** The member of a union whose field `type` has this value. Throws for an unknown one. */
export function memberOf(schema: Schema, tag: string): Schema {
  const member = membersOf(schema)[tag];
  if (member === undefined) throw new Error(`The backend's schema has no kind ${tag}.`);
  return member;
}

/** Splits a nullable field: whether it may be empty (null), and the schema of its other values. */
export function splitNullable(schema: Schema): { empty: boolean; of: Schema } {
  const { anyOf = [], ...texts } = schema;
  const [only, ...others] = anyOf.filter(({ type }) => type !== "null");
  if (only === undefined || others.length > 0 || anyOf.length < 2) return { empty: false, of: schema };
  return { empty: true, of: { ...only, ...texts } };
}

/** A field's label with its unit: `Dwell time, s`. */
export function labelOf({ title, unit }: Schema, name = ""): string {
  return [title ?? name, unit].filter(Boolean).join(", ");
}

/** The values of an enumeration, or of a list of them, with their labels. */
export function optionsOf({ enum: values, items, enum_labels = {} }: Schema): { value: string; label: string }[] {
  return (values ?? items?.enum ?? []).map((value) => ({ value, label: enum_labels[value] ?? value }));
}

export type InputKind =
  | "check"
  | "choice"
  | "choices"
  | "cpus"
  | "group"
  | "json"
  | "labels"
  | "number"
  | "pairs"
  | "text"
  | "words";

/** The kind of form input for a schema; `json` where no other one fits. */
export function inputOf(schema: Schema): InputKind {
  const { type, format, enum: values, items, properties, additionalProperties } = splitNullable(schema).of;
  if (format === "cpu-list") return "cpus";
  if (format === "labels") return "labels";
  if (values !== undefined) return "choice";
  if (type === "boolean") return "check";
  if (type === "integer" || type === "number") return "number";
  if (type === "string") return "text";
  if (type === "object" && properties !== undefined) return "group";
  if (type === "object" && typeof additionalProperties === "object") return "pairs";
  if (type !== "array" || items === undefined) return "json";
  if (items.enum !== undefined) return "choices";
  return ["string", "integer", "number"].includes(items.type ?? "") ? "words" : "json";
}

/** Whether the schema is an integer's, nullable or not. */
export const isInteger = (schema: Schema): boolean => splitNullable(schema).of.type === "integer";
