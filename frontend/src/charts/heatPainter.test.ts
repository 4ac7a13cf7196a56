import { expect, test } from "vitest";
import { HeatBlock, NO_DATA } from "./heatBlock";
import { adjacentRuns, type Band, columnsUnder, pooledMaximum } from "./heatPainter";

const TODAY = 1_763_000_000; // a column number of one-second columns

test.each([
  [300, 900],
  [900, 900],
  [900, 899],
  [900, 283],
])("%s columns on %s pixels: every column is under a pixel, and every pixel over a column", (columns, pixels) => {
  const first = Math.floor((TODAY * pixels) / columns);
  const under = Array.from({ length: pixels }, (_, index) => columnsUnder(first + index, columns / pixels));
  under.forEach(([from, to], index) => {
    expect(to).toBeGreaterThanOrEqual(from);
    expect(from).toBeLessThanOrEqual((under[index - 1]?.[1] ?? from) + 1);
  });
  expect((under.at(-1)?.[1] ?? 0) - (under[0]?.[0] ?? 0)).toBeGreaterThanOrEqual(columns - 1);
});

test("as many pixels as columns show one column each", () => {
  expect([TODAY, TODAY + 1].map((pixel) => columnsUnder(pixel, 1))).toEqual([
    [TODAY, TODAY],
    [TODAY + 1, TODAY + 1],
  ]);
});

test("a pool is the maximum over its CPUs and columns, NO_DATA outside the block", () => {
  const block = new HeatBlock(2, 4, 1000, 3500);
  block.push(1000, 1000, Uint8Array.from([10, 60]));
  block.push(2000, 1000, Uint8Array.from([30, NO_DATA]));
  expect(pooledMaximum(block, [0], 0, 1)).toBe(30);
  expect(pooledMaximum(block, [0, 1], 0, 1)).toBe(60);
  expect(pooledMaximum(block, [0, 1, 7], 2, 3)).toBe(NO_DATA);
  expect(pooledMaximum(block, [0], -10, -5)).toBe(NO_DATA);
});

test("adjacent bands of equal height form one run, without headings, and end at a gap", () => {
  const heights = [22, 18, 18, 22, 18, 18, 18];
  const headings = new Set([0, 3]);
  let top = 0;
  const bands = heights.map((height, index): Band => {
    const band = { cpus: headings.has(index) ? [] : [index], top, height };
    top += height;
    return band;
  });
  expect(adjacentRuns(bands)).toEqual([
    [1, 2],
    [4, 6],
  ]);
  const gap = bands.map((band, index) => (index < 6 ? band : { ...band, top: band.top + 4 }));
  expect(adjacentRuns(gap)).toEqual([
    [1, 2],
    [4, 5],
    [6, 6],
  ]);
});
