import { expect, test } from "vitest";
import { placeMarks } from "./lane";

const mark = (timeMs: number) => ({ key: String(timeMs), timeMs, label: "IRQ 38 → 0" });
const placed = (...times: number[]) =>
  placeMarks(times.map(mark), { from: 0, to: 1000 }, 500).map(({ at, label, side }) => [Math.round(at), label, side]);

test("a label is right of its stroke", () => {
  expect(placed(200)).toEqual([[100, "IRQ 38 → 0", "right"]]);
});

test("at the end of the lane a label is left of its stroke", () => {
  expect(placed(990)).toEqual([[495, "IRQ 38 → 0", "left"]]);
});

test("no stroke crosses a label: it is on the free side of its own, or left out", () => {
  expect(placed(100, 160)).toEqual([
    [50, "IRQ 38 → 0", null],
    [80, "IRQ 38 → 0", "right"],
  ]);
  expect(placed(200, 260)).toEqual([
    [100, "IRQ 38 → 0", "left"],
    [130, "IRQ 38 → 0", "right"],
  ]);
  expect(placed(200, 440, 500)).toEqual([
    [100, "IRQ 38 → 0", "right"],
    [220, "IRQ 38 → 0", null],
    [250, "IRQ 38 → 0", "right"],
  ]);
});

test("marks next to each other are one stroke", () => {
  expect(placed(100, 110, 119, 400)).toEqual([
    [50, "3 changes", "right"],
    [200, "IRQ 38 → 0", "right"],
  ]);
});

test("marks outside the range are omitted", () => {
  expect(placed(-1, 1001)).toEqual([]);
});
