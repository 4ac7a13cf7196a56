import { expect, test } from "vitest";
import { summaryOf } from "../testData";
import { barOf, charted, responseEnd, responseWords, systemEnd, systemWords, ticksTo } from "./charted";

const CELLS = [
  summaryOf({ scheme: "SB" }, 12, [11, 14]),
  summaryOf({ scheme: "SB+RO" }, 10),
  summaryOf({ scheme: "SB", job_type: "swl3" }, 9),
  summaryOf({ scheme: "SB", pattern: "aa" }, 8),
  summaryOf({ scheme: "SB", imbalance: 1.5 }, 7),
];

test("charts show the cells of one pattern and imbalance by job type", () => {
  expect(charted(CELLS, "nn", 0.5).map(({ jobType, cells }) => [jobType, cells.map((one) => one.cell.scheme)])).toEqual(
    [
      ["swl1", ["SB", "SB+RO"]],
      ["swl3", ["SB"]],
    ],
  );
  expect(charted(CELLS, "aa", 1.5)).toEqual([]);
});

test("a bar's interval is relative to its mean, and empty with one seed", () => {
  const bars = CELLS.slice(0, 2).map(barOf);
  expect(bars.map(({ interval, reordered }) => [interval, reordered])).toEqual([
    [[1, 2], false],
    [[0, 0], true],
  ]);
});

test("axes end beyond all bars, and beyond intervals that do not dwarf them", () => {
  const bars = CELLS.map(barOf);
  expect(responseEnd(bars)).toBe(20);
  expect(systemEnd(bars)).toBe(100);
  expect(responseEnd([])).toBe(1);
  expect(responseEnd([barOf(summaryOf({}, 2, [0.1, 400]))])).toBe(5);
  expect(ticksTo(20)).toEqual([0, 5, 10, 15, 20]);
  expect(ticksTo(250)).toEqual([0, 50, 100, 150, 200, 250]);
});

test("charts are described in words", () => {
  expect(responseWords(CELLS.slice(0, 2))).toBe("SB 12.0 s, SB+RO 10.0 s");
  expect(systemWords(CELLS.slice(0, 1))).toBe(
    "SB compute 60.0 %, idle 30.0 %, spin 8.0 %, context switches 1.5 %, overhead 0.5 %",
  );
});
