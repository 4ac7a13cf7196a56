import { expect, test } from "vitest";
import { drawnTexts, fakeContext, TOKENS } from "../../charts/fakeContext";
import type { Coalescing, Surface } from "./nicParams";
import { cellSize, chartHeight, PLOT_LEFT, PLOT_TOP, paintSurface, type SurfacePicture } from "./surfacePainter";

const predicted = (interrupts_per_s: number) => ({
  interrupts_per_s,
  packets_per_interrupt: 8,
  added_mean_us: 5,
  added_p99_us: 10,
  added_worst_us: 10,
  dropped_share: 0,
});

/** Two values of rx-usecs by two of rx-frames; 400 pixels make cells of 100 × 143 pixels. */
const SURFACE: Surface = {
  rx_usecs: [10, 50],
  rx_frames: [1, 32],
  predicted: [
    [null, predicted(20_000)],
    [predicted(9000), predicted(4200)],
  ],
  bound_us: [
    [0, 0],
    [10, null],
  ],
  product_us: [
    [10, 50],
    [320, 1600],
  ],
};
const WIDTH = PLOT_LEFT + 200;
const point = (rx_usecs: number | null) => ({
  ...{ rx_usecs, rx_frames: 32, adaptive: false, seconds: 40, packets_per_s: 80_000, frame_bytes: 1400 },
  ...{ interrupts_per_s: 8100, packets_per_interrupt: 9.9, dropped_per_s: 0, rtt_p50_us: null },
  ...{ last_at: "2026-11-21T08:00:00Z", predicted_interrupts_per_s: null },
});

function draw(over: Partial<SurfacePicture> = {}, coalescing: Partial<Coalescing> = {}) {
  const { context, drawn } = fakeContext();
  const current = { rx_usecs: 10, rx_frames: 32, adaptive: false };
  paintSurface(context, TOKENS, {
    coalescing: { points: [], current, ...coalescing } as unknown as Coalescing,
    ...{ surface: SURFACE, colour: "interrupts", allowedUs: null, width: WIDTH, selected: null, at: null },
    ...over,
  });
  return drawn;
}

test.each([
  [{ "coalesce/rx-usecs": "3", "coalesce/rx-frames": "32" }, 320],
  [{ "coalesce/rx-usecs": "3" }, 150],
])("the height for parameters %o is %d pixels", (params, height) => expect(chartHeight(params)).toBe(height));

test.each([
  ["rows and columns", SURFACE, { w: 100, h: (320 - PLOT_TOP) / 2 }],
  [
    "a single row",
    { ...SURFACE, rx_frames: [], predicted: SURFACE.predicted.slice(0, 1) },
    { w: 100, h: 150 - PLOT_TOP },
  ],
])("the cells of %s fill the chart beside its axes", (_, surface, size) =>
  expect(cellSize(surface, WIDTH)).toEqual(size),
);

test("axes have the values of both parameters, and known cells their figure", () => {
  expect(drawnTexts(draw())).toEqual([
    "rx-usecs, µs →",
    "10",
    "50",
    "rx-frames ↓",
    "1",
    "32",
    "20.0\u00a0k/s",
    "9.00\u00a0k/s",
    "4.20\u00a0k/s",
    "now",
  ]);
});

test("narrow cells have no figure", () => {
  expect(drawnTexts(draw({ width: PLOT_LEFT + 80 }))).not.toContain("20.0\u00a0k/s");
});

test("values without room beside the one before, or at the edge, are left out", () => {
  const row = Array.from({ length: 5 }, () => null);
  const surface = { ...SURFACE, rx_usecs: [90, 125, 180, 250, 1000], rx_frames: [], predicted: [row], bound_us: [row] };
  expect(drawnTexts(draw({ surface, width: PLOT_LEFT + 80 }))).toEqual(["rx-usecs, µs →", "90", "180", "now"]);
});

test("a cell without a prediction is hatched", () => {
  const cells = draw().filter(({ call, args }) => call === "fillRect" && args[2] === 99);
  expect(cells.map(({ fillStyle }) => fillStyle === "--line-strong")).toEqual([true, false, false, false]);
});

test("cells that exceed the bound are hatched without figure, with an edge to their neighbours", () => {
  const drawn = draw({ allowedUs: 20 });
  expect(drawnTexts(drawn)).not.toContain("4.20\u00a0k/s");
  const edges = drawn.filter(({ call }) => call === "moveTo").map(({ args }) => args);
  const middle = [PLOT_LEFT + 100 - 0.5, PLOT_TOP + 143 - 0.5];
  expect(edges).toEqual([middle, middle]);
});

test.each([
  [point(50), [PLOT_LEFT + 150, PLOT_TOP + 2 * 143 - 13]],
  [point(30), [PLOT_LEFT + 100, PLOT_TOP + 2 * 143 - 13]],
  [point(null), null],
])("a measured point %o is drawn at %o", (measured, at) => {
  const arc = draw({}, { points: [measured] }).find(({ call }) => call === "arc");
  expect(arc === undefined ? null : arc.args.slice(0, 2)).toEqual(at);
});

test("in low cells a measured point is beside the figure", () => {
  const rows = Array.from({ length: 8 }, (_, row) => row + 1);
  const surface = { ...SURFACE, rx_frames: rows, predicted: rows.map(() => [predicted(9000), predicted(9000)]) };
  const drawn = draw({ surface, width: PLOT_LEFT + 160 }, { points: [{ ...point(50), rx_frames: 1 }] });
  const [x] = drawn.find(({ call }) => call === "arc")?.args ?? [];
  const figure = drawn.filter(({ call, args }) => call === "fillText" && args[0] === "9.00\u00a0k/s")[1];
  expect([x, figure?.args[1]]).toEqual([PLOT_LEFT + 150, PLOT_LEFT + 80 + 33]);
});

test("frames mark the current and the selected values; adaptive-rx has no current values", () => {
  expect(drawnTexts(draw({ selected: { row: 0, column: 1 } })).slice(-2)).toEqual(["now", "selected"]);
  const adaptive = { rx_usecs: 10, rx_frames: 32, adaptive: true } as Coalescing["current"];
  expect(drawnTexts(draw({}, { current: adaptive }))).not.toContain("now");
});
