import { expect, test } from "vitest";
import { formSchemas } from "./formSchemas";
import {
  fieldAt,
  fieldsOf,
  inputOf,
  labelOf,
  memberOf,
  membersOf,
  optionsOf,
  type Schema,
  splitNullable,
} from "./schema";
import { readField, readObject, valuesOf, valueText } from "./values";

const OBJECT: Schema = {
  type: "object",
  properties: {
    type: { type: "string", enum: ["example"] },
    count: { type: "integer", minimum: 1, maximum: 64, default: 4, title: "Count" },
    share: { type: "number", minimum: 0, maximum: 1, default: 0.55, scale: 100, unit: "%", title: "Share" },
    limit: { anyOf: [{ type: "number", exclusiveMinimum: 0, maximum: 9 }, { type: "null" }], default: null },
    on: { type: "boolean", default: true },
    mode: { type: "string", enum: ["a", "b"], enum_labels: { a: "first" }, default: "a", examples: ["b"] },
    cpus: { type: "string", format: "cpu-list", default: "" },
    names: { type: "array", items: { type: "string" }, maxItems: 2, default: [] },
    which: { type: "array", items: { type: "string", enum: ["x", "y"] }, default: ["y"] },
    inner: { type: "object", properties: { dwell_s: { type: "number", minimum: 0, default: 30 } } },
    pins: {
      type: "object",
      additionalProperties: { type: "string", pattern: "^[0-9,-]+$", description: "A list of nodes." },
      maxProperties: 2,
      default: {},
    },
    weights: {
      type: "object",
      additionalProperties: { type: "number", minimum: 0.1, maximum: 10 },
      default: { "nginx*": 2 },
    },
    other: { type: "array", items: { type: "object" }, default: [] },
  },
};

function read(values: Record<string, string>): [Record<string, unknown>, Record<string, string>] {
  const errors: Record<string, string> = {};
  return [readObject(OBJECT, "", { ...valuesOf(OBJECT, undefined), ...values }, errors), errors];
}

test("every field has the input of its type, and the tag of a union none", () => {
  expect(fieldsOf(OBJECT).map(([name, field]) => [name, inputOf(field)])).toEqual([
    ["count", "number"],
    ["share", "number"],
    ["limit", "number"],
    ["on", "check"],
    ["mode", "choice"],
    ["cpus", "cpus"],
    ["names", "words"],
    ["which", "choices"],
    ["inner", "group"],
    ["pins", "pairs"],
    ["weights", "pairs"],
    ["other", "json"],
  ]);
});

test("defaults are typed as people read them, and read as they are", () => {
  expect(valuesOf(OBJECT, undefined)).toMatchObject({ share: "55", on: "true", mode: "b", "inner.dwell_s": "30" });
  expect(read({})).toEqual([
    {
      count: 4,
      share: 0.55,
      limit: null,
      on: true,
      mode: "b",
      cpus: "",
      names: [],
      which: ["y"],
      inner: { dwell_s: 30 },
      pins: {},
      weights: { "nginx*": 2 },
      other: [],
    },
    {},
  ]);
});

test("the text of pairs is read as the same pairs", () => {
  const pins = { "postgres*": "0,2-3", "Web?Content": "1" };
  expect(read({ pins: valueText({ type: "object", additionalProperties: { type: "string" } }, pins) })[0].pins).toEqual(
    pins,
  );
});

test("pairs of a name and a value may have patterns and lists", () => {
  const [{ pins, weights }, errors] = read({ pins: "postgres*=0,2-3  Web?Content=1", weights: "a.service=0.5" });
  expect([pins, weights, errors]).toEqual([{ "postgres*": "0,2-3", "Web?Content": "1" }, { "a.service": 0.5 }, {}]);
});

test.each([
  ["count", "0", "A whole number from 1 to 64."],
  ["count", "1.5", "A whole number from 1 to 64."],
  ["share", "101", "A number from 0 to 100."],
  ["limit", "0", "A number greater than 0, at most 9."],
  ["inner.dwell_s", "-1", "A number of at least 0."],
  ["cpus", "3-1", "The range 3-1 runs backwards; write 1-3."],
  ["names", "a b c", "At most 2 items."],
  ["pins", "postgres*", "“postgres*” has no value; write it as name=value."],
  ["pins", "a=0 a=1", "“a” is given twice."],
  ["pins", "a=x", "“a=x”: A list of nodes."],
  ["pins", "a=0 b=1 c=1", "At most 2."],
  ["weights", "a=11", "“a=11”: A number from 0.1 to 10."],
  ["other", "{", "Enter valid JSON."],
])("%s of “%s” is refused with its bounds", (path, text, sentence) => {
  expect(read({ [path]: text })[1]).toEqual({ [path]: sentence });
});

test.each([
  [{ minLength: 1, title: "Name" }, "", "Required."],
  [{ maxLength: 2 }, "abc", "At most 2 characters."],
  [{ pattern: "^[a-z]*$", description: "Lower-case letters." }, "A", "Lower-case letters."],
  [{ pattern: "^(?P<x>a)$" }, "b", undefined], // Python only: the backend checks it
])("text of %j that is “%s” has the error %s", (schema, text, sentence) => {
  const errors: Record<string, string> = {};
  readField({ type: "string", ...schema }, "name", { name: text }, errors);
  expect(errors.name).toBe(sentence);
});

test("labels have units, options their labels, and null is an empty field", () => {
  expect(labelOf(fieldAt(OBJECT, "share"))).toBe("Share, %");
  expect(optionsOf(fieldAt(OBJECT, "mode"))).toEqual([
    { value: "a", label: "first" },
    { value: "b", label: "b" },
  ]);
  expect(splitNullable(fieldAt(OBJECT, "limit")).empty).toBe(true);
  expect(() => fieldAt(OBJECT, "inner.none")).toThrow("no field inner.none");
});

test("no field that the backend publishes is typed as JSON but lists with an editor of their own", () => {
  const unknown = (schema: Schema, path: string): string[] =>
    fieldsOf(schema).flatMap(([name, field]) => {
      if (inputOf(field) === "group") return unknown(field, `${path}.${name}`);
      return inputOf(field) === "json" && field.format === undefined ? [`${path}.${name}`] : [];
    });
  const { policy, experiment } = formSchemas();
  const kinds = Object.entries(membersOf(fieldAt(policy, "spec")));
  const workloads = Object.entries(membersOf(fieldAt(experiment, "workload")));
  expect([...kinds, ...workloads].flatMap(([name, member]) => unknown(member, name))).toEqual([]);
  expect(unknown(policy, "policy")).toEqual(["policy.spec", "policy.guardrails"]);
  expect(memberOf(fieldAt(policy, "spec"), "irq-spread").title).toBe("Spread interrupts");
});
