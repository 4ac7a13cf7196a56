import { expect, test } from "vitest";
import { frozen, placeLabels } from "./TimeBar";

test("a link holds the time in sight and what is selected, and leaves the live span out", () => {
  const range = { from: 1000.4, to: 61000.6 };
  expect(frozen("http://host/nodes/1?span=60&sel=irq%3A41", range)).toBe(
    "http://host/nodes/1?sel=irq%3A41&from=1000&to=61001",
  );
});

test("a link of a past range stays the same", () => {
  const href = "http://host/nodes/1?from=1000&to=61000";
  expect(frozen(href, { from: 1000, to: 61000 })).toBe(href);
});

const mark = (timeMs: number) => ({ key: String(timeMs), timeMs, label: "IRQ 38 → 0" });
const placed = (...times: number[]) =>
  placeLabels(times.map(mark), { from: 0, to: 1000 }, 500).map(({ left, whole }) => [Math.round(left), whole]);

test("a label stands at its moment", () => {
  expect(placed(200)).toEqual([[100, true]]);
});

test("a label at the end stands left of it, the one before left of that", () => {
  expect(placed(990, 980)).toEqual([
    [434, true],
    [360, true],
  ]);
});

test("a label without room is a stroke at its moment", () => {
  expect(placed(100, 90, 80)).toEqual([
    [50, true],
    [45, false],
    [40, false],
  ]);
});

test("what is not in sight has no place", () => {
  expect(placed(-1, 1001)).toEqual([]);
});
