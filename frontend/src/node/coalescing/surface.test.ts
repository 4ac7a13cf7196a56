import { expect, describe as group, test } from "vitest";
import type { Coalescing, Surface } from "./nicParams";
import {
  anchoredSurface,
  cellOf,
  describeCell,
  describePoint,
  exceedsBound,
  fractionalIndex,
  latencyBoundUs,
  modelError,
  scaleOf,
  scalePosition,
} from "./surface";

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

test("the scale includes all amounts, and amounts below it are at position 0", () => {
  expect(scaleOf(SURFACE, "interrupts")).toEqual([2000, 100_000]);
  expect(scaleOf(SURFACE, "latency")).toEqual([1, 100]);
  expect([0, 1, 10, 100, 1000].map((amount) => scalePosition(amount, [1, 100]))).toEqual([0, 0, 0.5, 1, 1]);
});

test("a constant surface has a scale", () => {
  const flat = { ...SURFACE, predicted: [[predicted(5000)]] };
  expect(scaleOf(flat, "interrupts")).toEqual([5000, 100_000]);
});

test("an idle NIC has calm colours, and more interrupts than half of a CPU serves extend the scale", () => {
  const idle = { ...SURFACE, predicted: [[predicted(30), predicted(2)]] };
  const scale = scaleOf(idle, "interrupts");
  expect(scale).toEqual([2, 100_000]);
  expect(scalePosition(30, scale)).toBeLessThan(0.3);
  expect(scaleOf({ ...SURFACE, predicted: [[predicted(800_000)]] }, "interrupts")).toEqual([500_000, 5_000_000]);
});

const measured = (interrupts_per_s: number | null, of: number | null, measured_s: number | null = 60) =>
  ({
    traffic: { measured_s },
    current: { interrupts_per_s, predicted: of === null ? null : predicted(of), rx_usecs: null, rx_frames: null },
    surface: SURFACE,
  }) as unknown as Coalescing;

test.each([
  ["agrees with the measurement", measured(9000, 8000), null],
  ["predicts a third", measured(9000, 3000), 3],
  ["predicts four times as many", measured(2000, 8000), 0.25],
  ["has no prediction", measured(9000, null), null],
  ["has no measurement", measured(null, 8000), null],
  ["is for assumed traffic", measured(9000, 100, null), null],
])("where the model %s, it is scaled by %s", (_, coalescing, error) => {
  expect(modelError(coalescing)).toBe(error);
  const shown = anchoredSurface(coalescing)?.predicted[0]?.[2];
  expect(shown?.interrupts_per_s).toBe(9000 * (error ?? 1));
  expect(shown?.packets_per_interrupt).toBe(8 / (error ?? 1));
});

test("the cell of the present values has the prediction that is compared with the measurement", () => {
  const at = (rx_usecs: number, adaptive = false) => {
    const { current, ...rest } = measured(9000, 9500);
    const now = { ...current, rx_usecs, rx_frames: 1, adaptive };
    return anchoredSurface({ ...rest, current: now })?.predicted[0]?.map((cell) => cell?.interrupts_per_s);
  };
  expect(at(54)).toEqual([undefined, 20_000, 9500, 4200]);
  expect(at(50)).toEqual([undefined, 20_000, 9000, 4200]);
  expect(at(54, true)).toEqual([undefined, 20_000, 9000, 4200]);
});

test.each([
  [3, 0],
  [18, 1],
  [36, 1.5],
  [500, 3],
  [0, 0],
])("%d µs has the column index %d", (value, index) => expect(fractionalIndex(SURFACE.rx_usecs, value)).toBe(index));

test("values without rx-usecs, or without rx-frames where the surface has them, have no cell", () => {
  expect(cellOf(SURFACE, 54, 32)).toEqual({ row: 1, column: 2 });
  expect(cellOf(SURFACE, null, 32)).toBeNull();
  expect(cellOf(SURFACE, 54, null)).toBeNull();
  expect(cellOf({ ...SURFACE, rx_frames: [] }, 54, null)).toEqual({ row: 0, column: 2 });
});

test("a longer and an unbounded wait exceed the bound", () => {
  const line = (allowed: number | null) =>
    [1, 2, 3].map((column) => exceedsBound(SURFACE, { row: 1, column }, allowed));
  expect(line(20)).toEqual([false, true, true]);
  expect(line(1e6)).toEqual([false, false, true]);
  expect(line(null)).toEqual([false, false, false]);
});

group("a cell's sentence states", () => {
  test("the prediction and both bounds", () =>
    expect(describeCell(SURFACE, { row: 1, column: 2 }, 20)).toBe(
      "rx-usecs 54, rx-frames 32: 8.00\u00a0k/s, 8.00 packets/interrupt; adds 5.00\u00a0µs mean, 10.0\u00a0µs p99, " +
        "54.0\u00a0µs max (rx-usecs × rx-frames: 1.73\u00a0ms); exceeds the bound.",
    ));
  test("an unbounded wait and the dropped share", () =>
    expect(describeCell(SURFACE, { row: 1, column: 3 }, null)).toMatch(/unbounded.*; 2\.0 % dropped\.$/));
  test("that the value selects a driver mode", () =>
    expect(describeCell(SURFACE, { row: 0, column: 0 }, null)).toMatch(/^rx-usecs 3, rx-frames 1: a driver mode/));
});

test("a measured point states its traffic and the prediction", () => {
  const point = {
    ...{ rx_usecs: 54, rx_frames: 32, adaptive: false, seconds: 40, packets_per_s: 80_000, frame_bytes: 1400 },
    ...{ interrupts_per_s: 8100, packets_per_interrupt: 9.9, dropped_per_s: 0, rtt_p50_us: 180 },
    ...{ last_at: "2026-11-21T08:00:00Z", predicted_interrupts_per_s: 7900 },
  };
  expect(describePoint(point)).toBe(
    "Measured: 8.10\u00a0k/s at 80,000 packets/s for 40\u00a0s, predicted 7.90\u00a0k/s, RTT p50 180\u00a0µs.",
  );
  expect(describePoint({ ...point, adaptive: true, predicted_interrupts_per_s: null, rtt_p50_us: null })).toBe(
    "Measured with adaptive-rx on: 8.10\u00a0k/s at 80,000 packets/s for 40\u00a0s.",
  );
});

test("the lowest policy bound applies unless the URL has one", () => {
  const bounds = [250, 100].map((max_added_us, policy_id) => ({ policy_id, name: "p", max_added_us }));
  expect(latencyBoundUs({ bounds } as Coalescing, undefined)).toBe(100);
  expect(latencyBoundUs({ bounds } as Coalescing, 500)).toBe(500);
  expect(latencyBoundUs({ bounds: [] as typeof bounds } as Coalescing, undefined)).toBeNull();
});
