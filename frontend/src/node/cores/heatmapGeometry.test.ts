import { expect, test } from "vitest";
import { HeatBlock, NO_DATA } from "../../charts/heatBlock";
import { flatRows } from "./coreRows";
import { highestShare, meanShare, shareText } from "./currentLoad";
import { cellText, nextCell } from "./heatmapGeometry";

const [CPU] = flatRows([1]);

test.each([
  ["ArrowDown", { row: 2, timeMs: 5000 }],
  ["ArrowUp", { row: 0, timeMs: 5000 }],
  ["ArrowLeft", { row: 1, timeMs: 4000 }],
  ["ArrowRight", { row: 1, timeMs: 6000 }],
  ["Home", { row: 0, timeMs: 5000 }],
  ["End", { row: 3, timeMs: 5000 }],
  ["Tab", null],
])("%s moves from row 1 to %o", (key, expected) => {
  expect(nextCell(key, { row: 1, timeMs: 5000 }, 4, 1000)).toEqual(expected);
});

test("arrow keys stop at the first and the last row, and start at the first", () => {
  expect(nextCell("ArrowUp", { row: 0, timeMs: 0 }, 4, 1000)?.row).toBe(0);
  expect(nextCell("ArrowDown", { row: 3, timeMs: 0 }, 4, 1000)?.row).toBe(3);
  expect(nextCell("ArrowLeft", { row: -1, timeMs: 0 }, 4, 1000)?.row).toBe(0);
});

test("a cell's text is the maximum of its row's CPUs in its column, or “no data”", () => {
  const block = new HeatBlock(4, 10, 1000, 10_500);
  block.push(10_000, 1000, Uint8Array.from([10, 40, 188, 255]));
  expect(cellText(block, CPU, 9500, "softirq")).toBe("softirq 20\u00a0%");
  expect(cellText(block, CPU, 5500, "softirq")).toBe("no data");
  expect(cellText(null, CPU, 9500, "softirq")).toBe("no data");
  expect(cellText(block, undefined, 9500, "softirq")).toBe("no data");
});

test("unknown CPUs do not count in the highest and the mean share", () => {
  const shares = Uint8Array.from([10, 90, NO_DATA, NO_DATA]);
  expect([highestShare([0, 1, 2], shares), meanShare([0, 1, 2], shares)]).toEqual([90, 50]);
  expect([highestShare([2, 3, 9], shares), meanShare([2, 3, 9], shares)]).toEqual([NO_DATA, NO_DATA]);
  expect([90, NO_DATA].map(shareText)).toEqual(["45 %", "–"]);
});
