import { expect, test } from "vitest";
import { markOf } from "./armMarks";
import { scaleOver } from "./axisScale";

test.each([
  [[0, 100], {}, [0, 50, 100]],
  [[9.1e9, 9.4e9], {}, [9.1e9, 9.2e9, 9.3e9, 9.4e9]],
  [[3, 8], { zero: true }, [0, 5]],
  [[-0.02, 0.1], { symmetric: true }, [-0.1, 0, 0.1]],
])("a scale over %j with %o has round ticks %j", (values, options, ticks) => {
  const scale = scaleOver(values, options);
  expect(scale.ticks.map((tick) => Number(tick.toPrecision(6)))).toEqual(ticks);
  expect(scale.low).toBeLessThanOrEqual(Math.min(...values));
  expect(scale.high).toBeGreaterThan(Math.max(...values));
});

test("values that are not known do not stretch a scale, and no value at all still gives one", () => {
  expect(scaleOver([1, Number.NaN, 3]).high).toBe(scaleOver([1, 3]).high);
  expect(Number.isFinite(scaleOver([]).at(0.5))).toBe(true);
});

test.each([2, 6, 7, 16])("each of %i arms differs from the others in shape or colour", (arms) => {
  const marks = Array.from({ length: arms }, (_, place) => markOf(place, arms));
  expect(new Set(marks.map(({ shape, colour }) => `${shape} ${colour}`)).size).toBe(arms);
});
