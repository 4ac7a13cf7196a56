import { expect, test } from "vitest";
import type { Point } from "../../charts/seriesRing";
import { keptOf } from "./useKept";

test("a silent node keeps the newest point with values", () => {
  const points: Point[] = [{ t: 0, rx: 1 }, { t: 10, rx: 3, tx: null }, { t: 20, rx: null }, { t: 30 }];
  expect(keptOf(points)).toEqual({ timeMs: 10, values: { rx: 3, tx: null } });
  expect(keptOf([{ t: 0 }])).toBeNull();
});
