import { expect, test } from "vitest";
import { absoluteLink, placeLabels } from "./TimeBar";

test("a link has the shown range and the selection, and no live span", () => {
  const range = { from: 1000.4, to: 61000.6 };
  expect(absoluteLink("http://host/nodes/1?span=60&sel=irq%3A41", range)).toBe(
    "http://host/nodes/1?sel=irq%3A41&from=1000&to=61001",
  );
});

test("a link of a past range stays the same", () => {
  const href = "http://host/nodes/1?from=1000&to=61000";
  expect(absoluteLink(href, { from: 1000, to: 61000 })).toBe(href);
});

const mark = (timeMs: number) => ({ key: String(timeMs), timeMs, label: "IRQ 38 → 0" });
const placed = (...times: number[]) =>
  placeLabels(times.map(mark), { from: 0, to: 1000 }, 500).map(({ left, whole }) => [Math.round(left), whole]);

test("a label is at its time", () => {
  expect(placed(200)).toEqual([[100, true]]);
});

test("labels at the end move left, the older one further", () => {
  expect(placed(990, 980)).toEqual([
    [434, true],
    [360, true],
  ]);
});

test("a label without room is a stroke at its time", () => {
  expect(placed(100, 90, 80)).toEqual([
    [50, true],
    [45, false],
    [40, false],
  ]);
});

test("marks outside the range are omitted", () => {
  expect(placed(-1, 1001)).toEqual([]);
});
