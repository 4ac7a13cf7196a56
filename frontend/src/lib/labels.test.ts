import { expect, test } from "vitest";
import { covers, parseLabels } from "./labels";

test.each([
  ["rack=r01 role=db", { rack: "r01", role: "db" }],
  ["", {}],
  ["rack=r01, url=a=b", { rack: "r01", url: "a=b" }],
  ["empty=", { empty: "" }],
])("%j is parsed as labels", (line, labels) => {
  expect(parseLabels(line)).toEqual(labels);
});

test.each([
  ["rack", /no value/],
  ["Rack=r01", /valid label name/],
  ["=r01", /valid label name/],
  ["rack=a rack=b", /twice/],
])("%j is rejected with a message", (line, sentence) => {
  expect(parseLabels(line)).toMatch(sentence);
});

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
