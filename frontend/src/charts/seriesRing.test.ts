import { expect, test } from "vitest";
import { pointsOf, SeriesRing } from "./seriesRing";

test("a step without samples is a point without values", () => {
  const ring = new SeriesRing(4, 1000, 3500);
  ring.push(1000, 1000, { a: 1 });
  ring.push(4000, 1000, { a: 4 });
  expect(ring.points()).toEqual([{ t: 0, a: 1 }, { t: 1000 }, { t: 2000 }, { t: 3000, a: 4 }]);
});

test("samples of a step are averaged by duration, without unknown values", () => {
  const ring = new SeriesRing(1, 4000, 3000);
  ring.push(1000, 1000, { a: 10, b: null });
  ring.push(4000, 3000, { a: 30, b: 7 });
  expect(ring.points()).toEqual([{ t: 0, a: 25, b: 7 }]);
});

test("history fills steps without data only", () => {
  const ring = new SeriesRing(3, 1000, 2500);
  ring.push(3000, 1000, { a: 3 });
  ring.fill({ step_ms: 1000, times_ms: [0, 1000, 2000], values: { a: [1, null, 99] } });
  expect(ring.points()).toEqual([{ t: 0, a: 1 }, { t: 1000 }, { t: 2000, a: 3 }]);
});

test("history fills steps for which earlier history had no values", () => {
  const ring = new SeriesRing(2, 1000, 1500);
  ring.fill({ step_ms: 1000, times_ms: [0, 1000], values: { a: [1, null] } });
  ring.fill({ step_ms: 1000, times_ms: [0, 1000], values: { a: [99, 2] } });
  expect(ring.points()).toEqual([
    { t: 0, a: 1 },
    { t: 1000, a: 2 },
  ]);
});

test("steps that left the window are dropped", () => {
  const ring = new SeriesRing(2, 1000, 500);
  ring.push(1000, 1000, { a: 1 });
  ring.advance(5500);
  expect(ring.points()).toEqual([{ t: 4000 }, { t: 5000 }]);
});

test("a past range retains its gaps", () => {
  expect(pointsOf({ step_ms: 60, times_ms: [0, 60], values: { a: [null, 2] } })).toEqual([
    { t: 0, a: null },
    { t: 60, a: 2 },
  ]);
});
