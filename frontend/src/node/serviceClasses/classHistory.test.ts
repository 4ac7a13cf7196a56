import { expect, test } from "vitest";
import { attainedPercent, type ClassReport, classColour, classPoints } from "./classHistory";

const HISTORY = {
  step_ms: 1000,
  times_ms: [0, 1000, 2000, 3000, 4000],
  policies: [
    {
      policy_id: 7,
      name: "percentiles",
      classes: [
        { name: "gold", values: { f: [0.9, null, 1, null, null] } },
        { name: "bronze", values: { f: [null, null, 0, null, null] } },
      ],
    },
  ],
};

test("data not reported yet is no gap in a live window, but one in a past range", () => {
  expect(classPoints(HISTORY, 7, true).map(({ t }) => t)).toEqual([0, 1000, 2000]);
  expect(classPoints(HISTORY, 7, false)).toHaveLength(5);
  expect(classPoints(HISTORY, 7, true)[2]).toEqual({ t: 2000, "f gold": 1, "f bronze": 0 });
});

test("there are no points for another policy or before the response", () => {
  expect([classPoints(HISTORY, 8, true), classPoints(undefined, 7, true)]).toEqual([[], []]);
});

test("a longer time without reports is a gap also in a live window", () => {
  const times_ms = Array.from({ length: 20 }, (_, index) => 1000 * index);
  const policy = { ...HISTORY.policies[0], policy_id: 7, name: "p", classes: [] };
  expect(classPoints({ ...HISTORY, times_ms, policies: [policy] }, 7, true)).toHaveLength(20);
});

test("attainment is null, not 0 %, without requests or without a source", () => {
  const report = { source: "gate", requests: 4, satisfied: 3 } as ClassReport;
  expect([
    attainedPercent(report),
    attainedPercent({ ...report, requests: 0 }),
    attainedPercent({ ...report, source: null }),
  ]).toEqual([75, null, null]);
});

test("the first and the last class have the ends of the scale", () => {
  expect([classColour(0, 3), classColour(2, 3), classColour(0, 1)]).toEqual([
    "color-mix(in oklch, var(--softirq) 0%, var(--rx))",
    "color-mix(in oklch, var(--softirq) 100%, var(--rx))",
    "color-mix(in oklch, var(--softirq) 0%, var(--rx))",
  ]);
});
