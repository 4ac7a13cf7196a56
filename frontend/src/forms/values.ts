import { CpuListError, formatCpuList, parseCpuList } from "../lib/cpulist";
import { labelsText, parseLabels } from "../lib/labels";
import { fieldsOf, inputOf, isInteger, optionsOf, type Schema, splitNullable } from "./schema";

/** The texts in a form's inputs, by field path such as `damping.dwell_s`. A checkbox is `true` or empty, a list is separated by spaces. */
export type Values = Record<string, string>;
/** The error messages of invalid fields, by field path. */
export type Errors = Record<string, string>;

/** A number without the rounding errors of a multiplication: 0.55 × 100 is 55. */
export const plainNumber = (value: number): number => Number(value.toPrecision(12));

export const splitWords = (line: string): string[] => line.split(/[\s,]+/).filter(Boolean);

/** The initial value of a field in a new form. */
const initialOf = ({ examples, default: value }: Schema): unknown => examples?.[0] ?? value;

/** A value as the text of its input; undefined: the schema's initial value. */
export function valueText(schema: Schema, value: unknown = initialOf(schema)): string {
  if (value === null || value === undefined) return "";
  switch (inputOf(schema)) {
    case "check":
      return value === true ? "true" : "";
    case "number":
      return String(plainNumber(Number(value) * (schema.scale ?? 1)));
    case "choices":
    case "words":
      return (value as unknown[]).join(" ");
    case "labels":
      return labelsText(value as Record<string, string>);
    case "pairs":
      return Object.entries(value as Record<string, string>)
        .map(([name, given]) => `${name}=${given}`)
        .join(" ");
    case "json":
      return JSON.stringify(value);
    default:
      return String(value);
  }
}

/** An object as the texts of its inputs; undefined: the initial value of every field. */
export function valuesOf(schema: Schema, value: unknown, path = ""): Values {
  const given = (value ?? {}) as Record<string, unknown>;
  const values: Values = {};
  for (const [name, field] of fieldsOf(schema)) {
    const at = path === "" ? name : `${path}.${name}`;
    if (inputOf(field) === "group") Object.assign(values, valuesOf(field, given[name], at));
    else values[at] = valueText(field, given[name]);
  }
  return values;
}

const shown = (value: number) => value.toLocaleString("en", { maximumFractionDigits: 6 });

/** `A whole number from 1 to 64.` */
function boundsSentence(schema: Schema, of: Schema): string {
  const scale = schema.scale ?? 1;
  const kind = of.type === "integer" ? "A whole number" : "A number";
  const { minimum, exclusiveMinimum, maximum } = of;
  const upTo = maximum === undefined ? "" : `${shown(maximum * scale)}`;
  if (minimum !== undefined)
    return upTo === ""
      ? `${kind} of at least ${shown(minimum * scale)}.`
      : `${kind} from ${shown(minimum * scale)} to ${upTo}.`;
  if (exclusiveMinimum !== undefined)
    return `${kind} greater than ${shown(exclusiveMinimum * scale)}${upTo && `, at most ${upTo}`}.`;
  return upTo === "" ? `${kind}.` : `${kind} of at most ${upTo}.`;
}

function readNumber(schema: Schema, text: string, fail: (sentence: string) => void): number {
  const { of } = splitNullable(schema);
  const { minimum = Number.NEGATIVE_INFINITY, maximum = Number.POSITIVE_INFINITY } = of;
  const value = text === "" ? Number.NaN : plainNumber(Number(text) / (schema.scale ?? 1));
  const fits = value >= minimum && value <= maximum && value > (of.exclusiveMinimum ?? Number.NEGATIVE_INFINITY);
  if (!Number.isFinite(value) || !fits || (isInteger(schema) && !Number.isInteger(value)))
    fail(boundsSentence(schema, of));
  return value;
}

function matches(pattern: string, text: string): boolean {
  try {
    return new RegExp(pattern, "u").test(text);
  } catch {
    return true; // Valid in Python but not in JavaScript: only the backend checks it.
  }
}

function readText(schema: Schema, text: string, fail: (sentence: string) => void): string {
  const { minLength = 0, maxLength, pattern } = schema;
  if (text === "" && (minLength > 0 || (pattern !== undefined && !matches(pattern, "")))) fail("Required.");
  else if (maxLength !== undefined && text.length > maxLength) fail(`At most ${shown(maxLength)} characters.`);
  else if (pattern !== undefined && !matches(pattern, text)) fail(schema.description ?? `It must match ${pattern}.`);
  return text;
}

function readWords(schema: Schema, text: string, fail: (sentence: string) => void): (string | number)[] {
  const { items = {}, maxItems } = schema;
  const words = splitWords(text);
  if (maxItems !== undefined && words.length > maxItems) fail(`At most ${shown(maxItems)} items.`);
  return words.map((word) =>
    items.type === "string" ? readText({ title: word, ...items }, word, fail) : readNumber(items, word, fail),
  );
}

/** Parses `postgres*=1 nginx=0-1`; names are shell patterns, so a `?` is written for a space. */
function readPairs(schema: Schema, text: string, fail: (sentence: string) => void): Record<string, unknown> {
  const { additionalProperties, maxProperties } = schema;
  const item = typeof additionalProperties === "object" ? additionalProperties : {};
  const pairs: Record<string, unknown> = {};
  for (const part of text.split(/\s+/).filter(Boolean)) {
    const at = part.lastIndexOf("=");
    const [name, value] = [part.slice(0, at), part.slice(at + 1)];
    if (at < 1) fail(`“${part}” has no value; write it as name=value.`);
    else if (Object.hasOwn(pairs, name)) fail(`“${name}” is given twice.`);
    else {
      const failPart = (sentence: string) => fail(`“${part}”: ${sentence}`);
      pairs[name] = item.type === "string" ? readText(item, value, failPart) : readNumber(item, value, failPart);
    }
  }
  if (maxProperties !== undefined && Object.keys(pairs).length > maxProperties)
    fail(`At most ${shown(maxProperties)}.`);
  return pairs;
}

function readCpus(text: string, fail: (sentence: string) => void): string {
  try {
    return formatCpuList(parseCpuList(text));
  } catch (error) {
    if (!(error instanceof CpuListError)) throw error;
    fail(error.message);
    return "";
  }
}

function readJson(text: string, fail: (sentence: string) => void): unknown {
  try {
    return JSON.parse(text);
  } catch {
    fail("Enter valid JSON.");
    return null;
  }
}

/** Parses the text of one input into its schema's value; adds a message to errors if it is invalid. */
export function readField(schema: Schema, path: string, values: Values, errors: Errors): unknown {
  const { empty, of } = splitNullable(schema);
  const text = (values[path] ?? "").trim();
  const fail = (sentence: string) => {
    errors[path] ??= sentence;
  };
  const input = inputOf(schema);
  if (input === "group") return readObject(of, path, values, errors);
  if (empty && text === "") return null;
  switch (input) {
    case "check":
      return text === "true";
    case "number":
      return readNumber(schema, text, fail);
    case "choices":
      return optionsOf(of)
        .map(({ value }) => value)
        .filter((value) => splitWords(text).includes(value));
    case "words":
      return readWords(of, text, fail);
    case "pairs":
      return readPairs(of, text, fail);
    case "cpus":
      return readCpus(text, fail);
    case "labels": {
      const labels = parseLabels(text);
      if (typeof labels === "string") fail(labels);
      return labels;
    }
    case "json":
      return readJson(text, fail);
    default:
      return readText(of, text, fail);
  }
}

/** Parses the texts of an object's inputs, without its field `type`; except: fields to omit. */
export function readObject(
  schema: Schema,
  path: string,
  values: Values,
  errors: Errors,
  except: readonly string[] = [],
): Record<string, unknown> {
  return Object.fromEntries(
    fieldsOf(schema)
      .filter(([name]) => !except.includes(name))
      .map(([name, field]) => [name, readField(field, path === "" ? name : `${path}.${name}`, values, errors)]),
  );
}
