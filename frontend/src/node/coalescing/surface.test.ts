import { expect, describe as group, test } from "vitest";
import type { Coalescing, Surface } from "./nicParams";
import { allowedOf, cellOf, describeCell, describePoint, isBeyond, placeOf, scaleOf, scalePosition } from "./surface";

const predicted = (interrupts_per_s: number, added_p99_us = 10) => ({
  interrupts_per_s,
  packets_per_interrupt: 8,
  added_mean_us: added_p99_us / 2,
  added_p99_us,
  added_worst_us: added_p99_us,
  dropped_share: 0,
});

const SURFACE: Surface = {
  rx_usecs: [3, 18, 54, 100],
  rx_frames: [1, 32],
  predicted: [
    [null, predicted(20_000, 0), predicted(9000), predicted(4200)],
    [null, predicted(18_000), predicted(8000), { ...predicted(2100, 80), dropped_share: 0.02 }],
  ],
  bound_us: [
    [0, 0, 0, 0],
    [3, 18, 54, null],
  ],
  product_us: [
    [3, 18, 54, 100],
    [96, 576, 1728, 3200],
  ],
};

test("the scale ends around all amounts, and nothing is not below it", () => {
  expect(scaleOf(SURFACE, "interrupts")).toEqual([2000, 20_000]);
  expect(scaleOf(SURFACE, "latency")).toEqual([1, 100]);
  expect([0, 1, 10, 100, 1000].map((amount) => scalePosition(amount, [1, 100]))).toEqual([0, 0, 0.5, 1, 1]);
});

test("a surface that is the same everywhere still has a scale", () => {
  const flat = { ...SURFACE, predicted: [[predicted(5000)]] };
  expect(scaleOf(flat, "interrupts")).toEqual([5000, 50_000]);
});

test.each([
  [3, 0],
  [18, 1],
  [36, 1.5],
  [500, 3],
  [0, 0],
])("%d µs stands at %d among the columns", (value, place) => expect(placeOf(SURFACE.rx_usecs, value)).toBe(place));

test("values that a driver does not have are in no cell", () => {
  expect(cellOf(SURFACE, 54, 32)).toEqual({ row: 1, column: 2 });
  expect(cellOf(SURFACE, null, 32)).toBeNull();
  expect(cellOf(SURFACE, 54, null)).toBeNull();
  expect(cellOf({ ...SURFACE, rx_frames: [] }, 54, null)).toEqual({ row: 0, column: 2 });
});

test("beyond the bound is what may wait longer, and what has no end", () => {
  const line = (allowed: number | null) => [1, 2, 3].map((column) => isBeyond(SURFACE, { row: 1, column }, allowed));
  expect(line(20)).toEqual([false, true, true]);
  expect(line(1e6)).toEqual([false, false, true]);
  expect(line(null)).toEqual([false, false, false]);
});

group("a cell says", () => {
  test("what the model predicts, with both bounds", () =>
    expect(describeCell(SURFACE, { row: 1, column: 2 }, 20)).toBe(
      "rx-usecs 54, rx-frames 32: 8.00 k/s, 8.00 packets an interrupt; adds 5.00 µs in the mean, 10.0 µs p99, " +
        "54.0 µs at most (rx-usecs × rx-frames: 1.73 ms); beyond the bound.",
    ));
  test("that a wait has no end, and what is dropped", () =>
    expect(describeCell(SURFACE, { row: 1, column: 3 }, null)).toMatch(/without an end.*; 2\.0 % dropped\.$/));
  test("that a mode of the driver is no time", () =>
    expect(describeCell(SURFACE, { row: 0, column: 0 }, null)).toMatch(
      /^rx-usecs 3, rx-frames 1: no time, but a mode/,
    ));
});

test("a measured point is told with the traffic at which it was measured and the model's word", () => {
  const point = {
    ...{ rx_usecs: 54, rx_frames: 32, adaptive: false, seconds: 40, packets_per_s: 80_000, frame_bytes: 1400 },
    ...{ interrupts_per_s: 8100, packets_per_interrupt: 9.9, dropped_per_s: 0, rtt_p50_us: 180 },
    ...{ last_at: "2026-11-21T08:00:00Z", predicted_interrupts_per_s: 7900 },
  };
  expect(describePoint(point)).toBe(
    "Measured: 8.10 k/s at 80,000 packets a second for 40 s, model 7.90 k/s, round trip p50 180 µs.",
  );
  expect(describePoint({ ...point, adaptive: true, predicted_interrupts_per_s: null, rtt_p50_us: null })).toBe(
    "Measured with adaptive-rx on: 8.10 k/s at 80,000 packets a second for 40 s.",
  );
});

test("the strictest policy's bound holds until another is asked for", () => {
  const bounds = [250, 100].map((max_added_us, policy_id) => ({ policy_id, name: "p", max_added_us }));
  expect(allowedOf({ bounds } as Coalescing, undefined)).toBe(100);
  expect(allowedOf({ bounds } as Coalescing, 500)).toBe(500);
  expect(allowedOf({ bounds: [] as typeof bounds } as Coalescing, undefined)).toBeNull();
});
