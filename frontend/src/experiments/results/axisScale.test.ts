import { expect, test } from "vitest";
import { markOf } from "./armMarks";
import { effectScale, scaleOver } from "./axisScale";

test.each([
  [[0, 100], {}, [0, 50, 100]],
  [[9.1e9, 9.4e9], {}, [9.1e9, 9.2e9, 9.3e9, 9.4e9]],
  [[3, 8], { zero: true }, [0, 5]],
])("a scale over %j with %o has round ticks %j", (values, options, ticks) => {
  const scale = scaleOver(values, options);
  expect(scale.ticks.map((tick) => Number(tick.toPrecision(6)))).toEqual(ticks);
  expect(scale.low).toBeLessThanOrEqual(Math.min(...values));
  expect(scale.high).toBeGreaterThan(Math.max(...values));
});

test("effects share the narrowest round scale around 0 with all estimates, at most 100 %", () => {
  const effect = (value: number) => ({ value, low: value - 3, high: value + 3 });
  expect(effectScale([effect(-0.46), effect(0.02), null]).ticks).toEqual([-0.5, 0, 0.5]);
  expect(effectScale([effect(4)]).ticks).toEqual([-1, 0, 1]);
  expect(effectScale([null]).at(0)).toBe(0.5);
});

test("values that are not known do not stretch a scale, and no value at all still gives one", () => {
  expect(scaleOver([1, Number.NaN, 3]).high).toBe(scaleOver([1, 3]).high);
  expect(Number.isFinite(scaleOver([]).at(0.5))).toBe(true);
});

test.each([2, 6, 7, 16])("each of %i arms differs from the others in shape or colour", (arms) => {
  const marks = Array.from({ length: arms }, (_, place) => markOf(place));
  expect(new Set(marks.map(({ shape, colour }) => `${shape} ${colour}`)).size).toBe(arms);
});
