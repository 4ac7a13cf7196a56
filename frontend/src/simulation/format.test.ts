import { expect, test } from "vitest";
import { changeText, holdsText, intervalText, placeText, seconds, shareText, specText, traceName } from "./format";
import { readStudy, studyValues } from "./studyForm";
import type { Spec } from "./types";

test.each([
  [0, "0.0 %"],
  [0.521, "52.1 %"],
  [0.0003, "0.03 %"],
  [1, "100.0 %"],
])("the share %f is shown as %s", (share, text) => {
  expect(shareText(share)).toBe(text);
});

test("times, intervals and cells have their units", () => {
  expect(seconds(12.34)).toBe("12.3 s");
  expect(seconds(0.84)).toBe("0.840 s");
  expect(intervalText({ low_s: 11.9, high_s: 12.7 })).toBe("11.9 to 12.7 s");
  expect(intervalText({ low_s: 0.84, high_s: 1.27 })).toBe("0.840 to 1.27 s");
  expect(intervalText({ low_s: null, high_s: null })).toBe("–");
  expect(placeText({ scheme: "SB", pattern: "nn", job_type: "swl1", imbalance: 0.5 })).toBe("NN SWL1, v 0.5");
});

test.each([
  [-0.214, "−21.4 %"],
  [0.069, "+6.9 %"],
  [-0.0001, "0.0 %"],
  [null, "–"],
])("the change %d is shown as %s", (change, text) => {
  expect(changeText(change)).toBe(text);
});

test.each([
  [8, 8, "holds in all 8 cells"],
  [3, 8, "holds in 3 of 8 cells"],
  [0, 8, "holds in none of 8 cells"],
  [1, 1, "holds in its only cell"],
  [0, 1, "does not hold in its only cell"],
])("a sign that holds in %i of %i cells %s", (holds, of, text) => {
  expect(holdsText({ holds, of })).toBe(text);
});

test("a study is described by what it simulates, and a trace by the file's name", () => {
  const { spec } = readStudy(studyValues());
  if (spec === null) throw new Error("The defaults are invalid.");
  const text = specText(spec as Spec);
  expect(text).toBe("SB, SB+RO, PB, PB+RO · NN, AA · SWL1, SWL2, SWL3 · v 0.5, 1.5 · 10 seeds · 200 jobs, generated");
  expect(traceName("../my log (1).swf")).toBe("my-log-1-.swf");
});
