import { expect, test } from "vitest";
import { machine } from "../testData";
import { columnsOf, scaleEnd, scalePosition } from "./matrixPainter";
import type { MatrixRow } from "./matrixRows";

const row = (...rates: number[]): MatrixRow => ({
  ...{ label: "41", irq: 41, name: "", netdev: null, locked: null, total: 0 },
  perS: new Map(rates.entries()),
});

test("columns are grouped by NUMA node, and each node's first column is marked", () => {
  const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 2 });
  expect(columnsOf(topology)).toEqual([
    { cpu: 0, starts: 0 },
    { cpu: 1, starts: null },
    { cpu: 4, starts: null },
    { cpu: 5, starts: null },
    { cpu: 2, starts: 1 },
    { cpu: 3, starts: null },
    { cpu: 6, starts: null },
    { cpu: 7, starts: null },
  ]);
});

test.each([
  [[], 100],
  [[row(3)], 100],
  [[row(100)], 100],
  [[row(101)], 1000],
  [[row(5, 1000), row(7)], 1000],
])("the scale of %o ends at %d per second", (rows, end) => expect(scaleEnd(rows)).toBe(end));

test("a scale position is 0 for no interrupts and 1 from the scale's end on", () => {
  expect([scalePosition(0, 1000), scalePosition(1000, 1000), scalePosition(5000, 1000)]).toEqual([0, 1, 1]);
  expect(scalePosition(30, 1000)).toBeGreaterThan(scalePosition(3, 1000));
});
