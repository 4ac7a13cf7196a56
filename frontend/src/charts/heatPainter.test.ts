import { expect, test } from "vitest";
import { HeatBlock, NO_DATA } from "./heatBlock";
import { adjacentRuns, type Band, pooledMaximum, poolFactor } from "./heatPainter";

test.each([
  [300, 900, 1],
  [900, 900, 1],
  [900, 899, 2],
  [900, 300, 3],
  [900, 0, 900],
])("%s columns on %s pixels are pooled by %s", (columns, pixels, pool) =>
  expect(poolFactor(columns, pixels)).toBe(pool),
);

test("a pool is the maximum over its CPUs and columns, NO_DATA outside the block", () => {
  const block = new HeatBlock(2, 4, 1000, 3500);
  block.push(1000, 1000, Uint8Array.from([10, 60]));
  block.push(2000, 1000, Uint8Array.from([30, NO_DATA]));
  expect(pooledMaximum(block, [0], 0, 1)).toBe(30);
  expect(pooledMaximum(block, [0, 1], 0, 1)).toBe(60);
  expect(pooledMaximum(block, [0, 1, 7], 2, 3)).toBe(NO_DATA);
  expect(pooledMaximum(block, [0], -10, -5)).toBe(NO_DATA);
});

test("adjacent bands of equal height form one run, without headings and invisible bands", () => {
  const heights = [22, 18, 18, 22, 18, 18, 18];
  const headings = new Set([0, 3]);
  let top = 0;
  const bands = heights.map((height, index): Band => {
    const band = { cpus: headings.has(index) ? [] : [index], top, height };
    top += height;
    return band;
  });
  expect(adjacentRuns(bands, 0, top)).toEqual([
    [1, 2],
    [4, 6],
  ]);
  expect(adjacentRuns(bands, 90, 110)).toEqual([[4, 5]]);
});
