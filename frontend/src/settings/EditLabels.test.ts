import { expect, test } from "vitest";
import { readLabels } from "./EditLabels";

test.each([
  ["rack=r01 role=db", { rack: "r01", role: "db" }],
  ["", {}],
  ["rack=r01, url=a=b", { rack: "r01", url: "a=b" }],
  ["empty=", { empty: "" }],
])("%j is read as labels", (line, labels) => {
  expect(readLabels(line)).toEqual(labels);
});

test.each([
  ["rack", /no value/],
  ["Rack=r01", /small letters/],
  ["=r01", /small letters/],
  ["rack=a rack=b", /twice/],
])("%j is refused with a sentence", (line, sentence) => {
  expect(readLabels(line)).toMatch(sentence);
});
