import { expect, test } from "vitest";
import { detectableText, effectText, effectWithInterval, figureText, pText } from "./format";
import { scaleOver } from "./results/axisScale";
import { specValueText } from "./results/ExperimentFacts";
import { verdictWords } from "./results/verdictText";
import { experimentState } from "./states";

test.each([
  [9_410_000_000, "bit/s", "9.41\u00a0Gbit/s"],
  [0, "bit/s", "0\u00a0bit/s"],
  [118, "µs", "118\u00a0µs"],
  [0.00314159, "s/Gbit", "0.00314 s/Gbit"],
  [20_300, "1/s", "20.3\u00a0k/s"],
  [182.4, "% of one CPU", "182 %"],
  [2.04, "", "2.04"],
  [undefined, "µs", "–"],
])("%s in %s is %s", (value, unit, words) => {
  expect(figureText(value, unit)).toBe(words);
});

test.each([
  [0, "0 %"],
  [0.1, "+10 %"],
  [-0.0123, "−1.2 %"],
  [0.0004, "+0.04 %"],
  [null, "–"],
])("a difference of %s is %s", (share, words) => {
  expect(effectText(share)).toBe(words);
});

test.each([
  [0.0201, "2.1 %"],
  [0.02, "2.0 %"],
  [1.234, "124 %"],
  [0.00041, "0.05 %"],
  [0, "0.0 %"],
  [null, "–"],
])("a minimum detectable difference of %s is rounded up as in the findings, to %s", (share, words) => {
  expect(detectableText(share)).toBe(words);
});

test("an interval stands beside its effect", () => {
  expect(effectWithInterval({ value: 0.041, low: 0.032, high: 0.05 })).toBe("+4.1 % (+3.2 to +5.0 %)");
});

test("a verdict says which way is better, and colour is never alone", () => {
  expect(verdictWords("lower", "less")).toEqual({ icon: "▼", words: "lower, better", tone: "ok" });
  expect(verdictWords("higher", "less")).toEqual({ icon: "▲", words: "higher, worse", tone: "bad" });
  expect(verdictWords("higher", "")).toEqual({ icon: "▲", words: "higher", tone: "" });
  expect(verdictWords("no-difference", "more").tone).toBe("muted");
});

test.each([
  ["queued", 1, "queued, position 1"],
  ["queued", 3, "queued, position 3"],
  ["running", 0, "running"],
  ["stopped", null, "stopped by a guardrail"],
] as const)("%s at position %s: %s", (state, queue_position, words) => {
  expect(experimentState({ state, queue_position })).toBe(words);
});

test("small p-values are not written as 0", () => {
  expect([pText(0.0004), pText(0.031), pText(null)]).toEqual(["< 0.001", "0.031", "–"]);
});

test("a scale has round ticks, also over a single value", () => {
  expect(scaleOver([0, 97]).ticks).toEqual([0, 50, 100]);
  expect(scaleOver([5]).at(5)).toBeCloseTo(0.5);
});

test("facts of a machine are words, not JSON", () => {
  expect(specValueText([{ name: "ens5", queues: 8, speed_bits_per_s: 25e9, numa_node: null }])).toBe(
    "ens5 (queues 8, 25.0\u00a0Gbit/s)",
  );
  expect([specValueText(""), specValueText([]), specValueText(true)]).toEqual(["none", "none", "yes"]);
});
