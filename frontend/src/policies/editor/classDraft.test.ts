import { expect, test } from "vitest";
import type { ServiceClass } from "../types";
import { diffLines } from "../versions/diff";
import {
  type ClassDraft,
  classDraft,
  classText,
  matchText,
  moved,
  nextClass,
  ordinal,
  readClasses,
} from "./classDraft";
import { bodyOf, draftOf, newDraft } from "./policyDraft";

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

test("classes that are shown and read again are the same", () => {
  expect(read(classDraft(GOLD), classDraft(BRONZE))).toEqual([[GOLD, BRONZE], {}]);
});

test.each([
  ["name", "Gold", "Small letters, digits, - and _, up to 32."],
  ["name", "bronze", "Another class has this name."],
  ["target_percent", "0", "More than 0, up to 100."],
  ["target_percent", "101", "More than 0, up to 100."],
  ["target_percent", "", "More than 0, up to 100."],
  ["deadline_ms", "soon", "More than 0, up to 600,000."],
  ["listens", "80 http", "Ports are whole numbers from 1 to 65,535."],
  ["clients", "10.0.0.0/8 office", "office is not a network such as 10.1.0.0/16."],
  ["commands", "x ".repeat(33), "32 are the most."],
  [
    "histogram",
    "http://elsewhere/metrics#x",
    "A page of the node itself such as http://127.0.0.1:9100/metrics, # and a name.",
  ],
])("a class with %s “%s” is told at that field of its own", (field, typed, sentence) => {
  const [, wrong] = read(classDraft(BRONZE), { ...classDraft(GOLD), [field]: typed });
  expect(wrong).toEqual({ [`spec.classes[1].${field}`]: sentence });
});

test("without any class there is nothing to serve", () => {
  expect(read()[1]).toEqual({ "spec.classes": "There must be a class." });
});

test("a class is moved to another place and the others keep their order", () => {
  expect([moved(["a", "b", "c"], 0, 2), moved(["a", "b", "c"], 2, 0), moved(["a"], 0, 0)]).toEqual([
    ["b", "c", "a"],
    ["c", "a", "b"],
    ["a"],
  ]);
});

test("one more class has a name of its own and is promised less than the last", () => {
  const list = [classDraft({ name: "class-3", target_percent: 50 }), classDraft(GOLD)];
  expect(nextClass(list)).toMatchObject({ name: "class-4", target_percent: "80" });
});

test("what belongs to a class is one line, and so is the whole class", () => {
  expect(matchText(classDraft(GOLD))).toBe("command nginx · port 80 443 · user www-data · client 10.0.0.0/8");
  expect(matchText(classDraft(BRONZE))).toBe("");
  expect(classText(BRONZE, 1)).toBe("2nd · P 50 %");
});

test.each([
  [1, "1st"],
  [3, "3rd"],
  [4, "4th"],
  [11, "11th"],
  [22, "22nd"],
])("place %i is %s", (place, word) => expect(ordinal(place)).toBe(word));

test("a policy keeps its classes, weights and whole slots through the form", () => {
  const made = bodyOf({ ...newDraft("service-class"), texts: { ...newDraft("service-class").texts, name: "p" } }).body;
  expect(made?.spec).toMatchObject({ slots: 0, window_s: 10, weights: [] });
  if (made === null || made.spec.type !== "service-class") throw new Error("It is of another kind.");
  const body = { ...made, spec: { ...made.spec, classes: [GOLD, BRONZE], weights: ["nice" as const, "io" as const] } };
  expect(bodyOf(draftOf(body)).body).toEqual(body);
  const texts = { ...draftOf(body).texts, "spec.slots": "1.5" };
  expect(bodyOf({ ...draftOf(body), texts }).wrong).toEqual({ "spec.slots": "A whole number from 0 to 4,096." });
});

test("two versions differ class by class, in the order of the newer one", () => {
  const lines = diffLines([
    {
      path: "spec.classes",
      was: JSON.stringify([GOLD, BRONZE]),
      becomes: JSON.stringify([BRONZE, { ...GOLD, name: "new" }]),
    },
    { path: "spec.weights", was: "[]", becomes: '["nice","cpu"]' },
  ]);
  const gold = "P 90 % · within 50 ms · command nginx · port 80 443 · user www-data · client 10.0.0.0/8";
  const histogram = "histogram http://127.0.0.1:9100/metrics#http_seconds";
  expect(lines.map(({ name, was, becomes }) => [name, was, becomes])).toEqual([
    ["Class bronze", "2nd · P 50 %", "1st · P 50 %"],
    ["Class new", null, `2nd · ${gold} · ${histogram}`],
    ["Class gold", `1st · ${gold} · ${histogram}`, null],
    ["Also steer", null, "nice cpu"],
  ]);
});
