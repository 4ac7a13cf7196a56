import { expect, test } from "vitest";
import { HeatBlock } from "../../charts/heatBlock";
import { frame } from "../testData";
import type { Row } from "./coreRows";
import { currentLoadOf } from "./currentLoad";
import { cellText, nextCell, rowName } from "./heatmapGeometry";

const CPU: Row = { kind: "cpu", key: "cpu:1", cpu: 1, depth: 0, cpus: [1] };
const GROUP: Row = { kind: "group", key: "/p", label: "package 0", depth: 0, cpus: [0, 1, 2], folded: true };

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
  expect(cellText(block, GROUP, 9500, "softirq")).toBe("softirq 94 %");
  expect(cellText(block, CPU, 9500, "softirq")).toBe("softirq 20 %");
  expect(cellText(block, CPU, 5500, "softirq")).toBe("no data");
  expect(cellText(null, CPU, 9500, "softirq")).toBe("no data");
  expect(cellText(block, undefined, 9500, "softirq")).toBe("no data");
});

test("a folded group's name includes its CPUs", () => {
  expect([rowName(CPU), rowName(GROUP)]).toEqual(["CPU 1", "package 0, maximum of CPUs 0-2"]);
});

const band = (...cpus: number[]) => ({ cpus, top: 0, height: 20 });
const SHARES = { busy: [10, 90, 255, 255], softirq: [1, 60, 2, 3], irq: [0, 255, 0, 0] };

test("a band's current load is its busiest known CPU's; unknown parts are 0", () => {
  expect(currentLoadOf(band(0, 1, 2), frame({ shares: SHARES }))).toEqual({ busy: 90, softirq: 60, irq: 0 });
  expect(currentLoadOf(band(0), frame({ shares: SHARES }))).toEqual({ busy: 10, softirq: 1, irq: 0 });
});

test("a band without a known CPU, and a frame without shares, have no current load", () => {
  expect(currentLoadOf(band(2, 3), frame({ shares: SHARES }))).toBeNull();
  expect(currentLoadOf(band(9), frame({ shares: SHARES }))).toBeNull();
  expect(currentLoadOf(band(0), frame())).toBeNull();
});
