import { expect, test } from "vitest";
import { parseLabels } from "./labels";

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
