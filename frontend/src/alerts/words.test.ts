import { expect, test } from "vitest";
import { parsePatterns, patternsOf, ruleText, valueText } from "./words";

test("a value has its unit, a condition has none", () => {
  expect(valueText({ value: 91.234, unit: "%" })).toBe("91.2 %");
  expect(valueText({ value: 1, unit: "" })).toBe("");
  expect(valueText({ value: 3, unit: "" })).toBe("3");
  expect(valueText({ value: 2, unit: "1/s" })).toBe("2/s");
  expect(valueText({ value: null, unit: "%" })).toBe("");
});

test("a rule says when it fires and when its alerts are resolved", () => {
  const rule = { threshold: 90, clear: 75, for_s: 300, keep_s: 0, unit: "%" };
  expect(ruleText(rule as Parameters<typeof ruleText>[0]).replace(/\u00a0/g, " ")).toBe(
    "fires at 90 % for 5 min; resolved below 75 %",
  );
});

test("the patterns of an alert are parsed as they were written", () => {
  expect(parsePatterns(patternsOf({ rule: "Node disconnected", name: "web-1" }))).toEqual({
    rule: "Node disconnected",
    node: "web-1",
  });
  expect(parsePatterns("rack=r0* role=db")).toEqual({ rack: "r0*", role: "db" });
  expect(parsePatterns("rack")).toContain("“rack” has no value");
  expect(parsePatterns(" ")).toContain("at least one");
});
