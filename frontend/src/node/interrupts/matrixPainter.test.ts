import { expect, test } from "vitest";
import { machine } from "../testData";
import { columnRate, columnsOf, scaleEnd, scalePosition } from "./matrixPainter";
import type { MatrixRow } from "./matrixRows";

const row = (...rates: number[]): MatrixRow => ({
  ...{ label: "41", irq: 41, name: "", netdev: null, locked: null, total: 0 },
  perS: new Map(rates.entries()),
});

test("columns are grouped by NUMA node, and each node's first column is marked", () => {
  const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 2 });
  expect(columnsOf(topology, 900).map(({ cpus, starts }) => [...cpus, starts])).toEqual([
    ...[
      [0, 0],
      [1, null],
      [4, null],
      [5, null],
    ],
    ...[
      [2, 1],
      [3, null],
      [6, null],
      [7, null],
    ],
  ]);
});

test("CPUs too narrow for a phone are summed by L3", () => {
  const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 4, coresEach: 8, threads: 2 });
  const columns = columnsOf(topology, 350);
  expect(columns.map(({ name, starts }) => [name, starts]).slice(3, 6)).toEqual([
    ["L3 3", null],
    ["L3 4", 1],
    ["L3 5", null],
  ]);
  const counts = {
    ...row(),
    perS: new Map([
      [0, 3],
      [64, 4],
      [8, 5],
    ]),
  };
  expect(columns.map((column) => columnRate(counts, column)).slice(0, 2)).toEqual([7, 5]);
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
