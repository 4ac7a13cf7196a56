import { expect, test } from "vitest";
import type { ServiceClass } from "../types";
import { diffLines } from "../versions/diff";
import {
  type ClassDraft,
  classDraft,
  classText,
  matchText,
  moveItem,
  nextClass,
  ordinal,
  readClasses,
} from "./classDraft";
import { draftOf, newDraft, readBody } from "./policyDraft";

const GOLD: ServiceClass = {
  name: "gold",
  target_percent: 90,
  deadline_ms: 50,
  match: {
    cgroups: [],
    units: [],
    users: ["www-data"],
    commands: ["nginx"],
    listens: [80, 443],
    clients: ["10.0.0.0/8"],
  },
  histogram: "http://127.0.0.1:9100/metrics#http_seconds",
};
const EMPTY = { cgroups: [], units: [], users: [], commands: [], listens: [], clients: [] };
const BRONZE: ServiceClass = { name: "bronze", target_percent: 50, deadline_ms: null, match: EMPTY, histogram: null };

function read(...drafts: ClassDraft[]): [ServiceClass[], Record<string, string>] {
  const wrong: Record<string, string> = {};
  return [readClasses(drafts, "spec.classes", wrong), wrong];
}

const withValue = (draft: ClassDraft, field: string, value: string): ClassDraft => ({
  ...draft,
  values: { ...draft.values, [field]: value },
});

test("classes that are shown and read again are the same", () => {
  expect(read(classDraft(GOLD), classDraft(BRONZE))).toEqual([[GOLD, BRONZE], {}]);
});

test.each([
  ["name", "Gold", "Lower-case letters, digits, - and _."],
  ["name", "", "Required."],
  ["name", "bronze", "Another class has this name."],
  ["target_percent", "0", "A number greater than 0, at most 100."],
  ["target_percent", "101", "A number greater than 0, at most 100."],
  ["target_percent", "", "A number greater than 0, at most 100."],
  ["deadline_ms", "soon", "A number greater than 0, at most 600,000."],
  ["match.listens", "80 http", "A whole number from 1 to 65,535."],
  ["match.clients", "10.0.0.0/8 office", "office is not a network such as 10.1.0.0/16."],
  ["match.commands", "x ".repeat(33), "At most 32 items."],
  ["histogram", "http://elsewhere/metrics#x", expect.stringContaining("a URL of Prometheus metrics")],
])("a class with %s “%s” has an error at that field", (field, typed, sentence) => {
  const [, wrong] = read(classDraft(BRONZE), withValue(classDraft(GOLD), field, typed));
  expect(wrong).toEqual({ [`spec.classes[1].${field}`]: sentence });
});

test("at least one class is required", () => {
  expect(read()[1]).toEqual({ "spec.classes": "Add a class." });
});

test("a class is moved to another place and the others keep their order", () => {
  expect([moveItem(["a", "b", "c"], 0, 2), moveItem(["a", "b", "c"], 2, 0), moveItem(["a"], 0, 0)]).toEqual([
    ["b", "c", "a"],
    ["c", "a", "b"],
    ["a"],
  ]);
});

test("one more class has a name of its own and a lower target than the last", () => {
  const list = [classDraft({ name: "class-3", target_percent: 50 }), classDraft(GOLD)];
  expect(nextClass(list)).toMatchObject({ values: { name: "class-4", target_percent: "80" } });
});

test("the work of a class is one line, and so is the whole class", () => {
  expect(matchText(classDraft(GOLD))).toBe(
    "commands nginx · listening ports 80 443 · users www-data · client networks 10.0.0.0/8",
  );
  expect(matchText(classDraft(BRONZE))).toBe("");
  expect(classText(BRONZE, 1)).toBe("2nd · target 50 %");
});

test.each([
  [1, "1st"],
  [3, "3rd"],
  [4, "4th"],
  [11, "11th"],
  [22, "22nd"],
])("place %i is %s", (place, word) => expect(ordinal(place)).toBe(word));

test("a policy keeps its classes, weights and concurrency limit through the form", () => {
  const made = readBody({
    ...newDraft("service-class"),
    values: { ...newDraft("service-class").values, name: "p" },
  }).body;
  expect(made?.spec).toMatchObject({ slots: 0, window_s: 10, weights: [] });
  if (made === null || made.spec.type !== "service-class") throw new Error("It is of another kind.");
  const body = { ...made, spec: { ...made.spec, classes: [GOLD, BRONZE], weights: ["nice" as const, "io" as const] } };
  expect(readBody(draftOf(body)).body).toEqual(body);
  const values = { ...draftOf(body).values, "spec.slots": "1.5" };
  expect(readBody({ ...draftOf(body), values }).wrong).toEqual({ "spec.slots": "A whole number from 0 to 4,096." });
});

test("two versions differ class by class, in the order of the newer one", () => {
  const differences = [
    {
      path: "spec.classes",
      was: JSON.stringify([GOLD, BRONZE]),
      becomes: JSON.stringify([BRONZE, { ...GOLD, name: "new" }]),
    },
    { path: "spec.weights", was: "[]", becomes: '["nice","cpu"]' },
  ];
  const lines = diffLines(differences, ["service-class"]);
  const gold =
    "target 90 % · within 50 ms · commands nginx · listening ports 80 443 · users www-data · client networks 10.0.0.0/8";
  const histogram = "histogram http://127.0.0.1:9100/metrics#http_seconds";
  expect(lines.map(({ name, was, becomes }) => [name, was, becomes])).toEqual([
    ["Class bronze", "2nd · target 50 %", "1st · target 50 %"],
    ["Class new", null, `2nd · ${gold} · ${histogram}`],
    ["Class gold", `1st · ${gold} · ${histogram}`, null],
    ["Adjusted weights", null, "nice cpu"],
  ]);
});
