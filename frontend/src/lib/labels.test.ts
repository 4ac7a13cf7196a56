import { expect, test } from "vitest";
import { covers, labelsText, parseLabels } from "./labels";

test.each([
  ["rack=r01 role=db", { rack: "r01", role: "db" }],
  ["", {}],
  ["rack=r01, url=a=b", { rack: "r01", url: "a=b" }],
  ["empty=", { empty: "" }],
  ['note="row 2, left" role=db', { note: "row 2, left", role: "db" }],
])("%j is parsed as labels", (line, labels) => {
  expect(parseLabels(line)).toEqual(labels);
});

test.each([
  ["rack", /no value/],
  ["Rack=r01", /valid label name/],
  ["=r01", /valid label name/],
  ['note="row 2', /“2” has no value/],
  ["rack=a rack=b", /twice/],
])("%j is rejected with a message", (line, sentence) => {
  expect(parseLabels(line)).toMatch(sentence);
});

test.each(["r01", "", "row 2", "a,b", 'the "first"', '"', '""', '"quoted"', "a=b", "two\nlines"])(
  "labels with the value %j are the same after they are written and parsed",
  (value) => expect(parseLabels(labelsText({ note: value, role: "db" }))).toEqual({ note: value, role: "db" }),
);

test.each([
  [{ role: "db" }, { role: "db", rack: "r1" }, true],
  [{ role: "db*" }, { role: "db-1" }, true],
  [{ role: "db*" }, { role: "db*" }, true],
  [{ role: "[!w]*" }, { role: "db" }, true],
  [{ role: "d.b" }, { role: "dxb" }, false],
  [{ role: "db" }, { role: "db*" }, false],
  [{ role: "db" }, {}, false],
  [{ role: "db", rack: "r0*" }, { role: "db" }, false],
  [{ role: "[" }, { role: "x" }, false],
])("patterns %o cover labels %o: %s", (patterns, labels, covered) =>
  expect(covers(patterns as Record<string, string>, labels as Record<string, string>)).toBe(covered),
);
