import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { micros } from "../lib/format";
import { Cursor } from "./cursor";
import type { Point } from "./seriesRing";
import { axisEnd, gapsOf, heights, TimeChart, valueAt } from "./TimeChart";

test.each([
  [0, 1],
  [0.3, 0.5],
  [7, 10],
  [10, 10],
  [101, 200],
  [2300, 2500],
])("an axis for %s ends at %s", (value, end) => expect(axisEnd(value)).toBeCloseTo(end));

test("ranges without any value are gaps; a value of one line suffices", () => {
  const points: Point[] = [
    { t: 0, a: 1, b: null },
    { t: 10, a: null, b: null },
    { t: 20 },
    { t: 30, a: null, b: 3 },
    { t: 40, a: null },
  ];
  expect(gapsOf(points, ["a", "b"], { from: 0, to: 50 })).toEqual([
    { from: 10, to: 30 },
    { from: 40, to: 50 },
  ]);
});

test("stacked areas reach the sum of the values", () => {
  const points: Point[] = [
    { t: 0, a: 1, b: 2 },
    { t: 1, a: null },
  ];
  expect(points.map((point) => heights(["a", "b"], point, true))).toEqual([[3], [0]]);
  expect(heights(["a", "b"], points[0] as Point, false)).toEqual([1, 2]);
});

test("stale lines keep their values, except under the crosshair", () => {
  const points: Point[] = [{ t: 0, a: 1 }, ...Array.from({ length: 9 }, (_, at) => ({ t: 10 * (at + 1) }))];
  const kept = { timeMs: 5, values: { a: 7 } };
  expect(valueAt(points, "a", null)).toBeNull();
  expect(valueAt(points, "a", null, kept)).toBe(7);
  expect(valueAt(points, "a", 4, kept)).toBe(1);
  expect(valueAt(points, "a", 50, kept)).toBeNull();
});

test("a chart without values states the reason", () => {
  const axis = {
    range: { from: 0, to: 2000 },
    marks: [],
    cursor: new Cursor(),
    onZoom: () => undefined,
    onHold: () => undefined,
  };
  const lines = [{ key: "p99", name: "p99", colour: "red" }];
  const props = {
    title: "Round trip",
    lines,
    format: micros,
    unit: "µs",
    axis,
    absent: "No TCP connection was active.",
  };
  const { rerender } = render(<TimeChart {...props} points={[{ t: 0 }, { t: 1000 }]} />, { wrapper: MantineProvider });
  expect(screen.getByText("No TCP connection was active.")).toBeTruthy();
  rerender(<TimeChart {...props} points={[{ t: 0, p99: 361 }, { t: 1000 }]} />);
  expect(screen.queryByText("No TCP connection was active.")).toBeNull();
  expect(screen.getByText("361 µs")).toBeTruthy();
});
