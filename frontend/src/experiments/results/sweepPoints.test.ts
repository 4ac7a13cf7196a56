import { expect, test } from "vitest";
import { about, level, run, sweep } from "../testData";
import { cpuMeans } from "./cpuMeans";
import { sweepMatrix, sweepPoints } from "./sweepPoints";

const METRIC = "throughput_bit_per_s";

test("levels stand in order of their values, with the authors' beside", () => {
  const one = sweep([20, 90, 0]);
  const row = {
    id: "longest",
    arm: "the longest",
    metric: METRIC,
    text: "~4,000",
    value: 4000,
    role: "c",
    against: "",
  };
  one.published = [{ ...row, direction: "", arms: [2], effect: null, unmeasured_because: null }];
  const { points, numeric } = sweepPoints(one, METRIC);
  expect(numeric).toBe(true);
  expect(points.map(({ name, x, y, authors: reported }) => [name, x, y?.value ?? null, reported])).toEqual([
    ["c", 0, 7, 4000],
    ["a", 20, 9, null],
    ["b", 90, null, null],
  ]);
});

test("levels without a value stand in their own order", () => {
  const { points, numeric } = sweepPoints(sweep([0, null, 90]), METRIC);
  expect(numeric).toBe(false);
  expect(points.map(({ x }) => x)).toEqual([0, 1, 2]);
});

test("two factors make a matrix, with nothing where nothing is known", () => {
  const one = sweep();
  one.spec.factors = [
    { name: "x", unit: "", levels: [level("a"), level("b")] },
    { name: "y", unit: "", levels: [level("c"), level("d")] },
  ];
  one.analysis.arms = [
    [0, 0],
    [0, 1],
    [1, 0],
    [1, 1],
  ];
  one.analysis.means = { [METRIC]: [about(1), about(2), null, about(4)] };
  expect(sweepMatrix(one, METRIC).map((row) => row.map((cell) => cell?.value ?? null))).toEqual([
    [1, 2],
    [null, 4],
  ]);
});

test("a CPU's mean is over the runs that count and that could tell", () => {
  const one = sweep();
  one.runs = [
    run(0, [0], { cpus: { busy: [10, null, 5] } }),
    run(1, [0], { cpus: { busy: [30, null, 5] } }),
    run(2, [0], { cpus: { busy: [99, 99, 99] }, discarded: "The host took time away." }),
    run(3, [2], { cpus: { busy: [1, 2] } }),
  ];
  expect(cpuMeans(one, "busy")).toEqual([
    [20, null, 5],
    [null, null, null],
    [1, 2, null],
  ]);
});

test("a CPU's mean is over the runs of the comparison, and over the A/A runs only without those", () => {
  const one = sweep();
  const ofItself = {
    ...run(0, [0], { cpus: { busy: [90] } }),
    planned: { ...run(0, [0]).planned, stage: "aa" as const },
  };
  one.runs = [ofItself, run(1, [0], { cpus: { busy: [10] } }), run(2, [1], { cpus: { busy: [20] } })];
  expect(cpuMeans(one, "busy")).toEqual([[10], [20], [null]]);
  one.runs = [ofItself, run(1, [0], { cpus: { busy: [10] }, discarded: "The host took time away." })];
  expect(cpuMeans(one, "busy")).toEqual([[90], [null], [null]]);
});
