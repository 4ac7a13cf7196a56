import { describe, expect, test } from "vitest";
import { coveredSteps, HeatBlock, HeatBlockError, largerCell, NO_DATA } from "./heatBlock";

function block(rows: number, columns: number, startMs: number, columnMs: number, cells: number[]): ArrayBuffer {
  const buffer = new ArrayBuffer(32 + cells.length);
  const view = new DataView(buffer);
  new Uint8Array(buffer).set([67, 83, 72, 49]); // CSH1
  view.setUint32(4, rows, true);
  view.setUint32(8, columns, true);
  view.setUint32(12, 1, true);
  view.setFloat64(16, startMs, true);
  view.setFloat64(24, columnMs, true);
  new Uint8Array(buffer, 32).set(cells);
  return buffer;
}

/** A row's cells from the oldest to the newest column. */
function row(heat: HeatBlock, cpu: number): number[] {
  return Array.from({ length: heat.columns }, (_, index) => heat.at(cpu, heat.startMs + (index + 0.5) * heat.columnMs));
}

describe("the binary response of /heatmap", () => {
  test("is parsed with its time range", () => {
    const heat = HeatBlock.parse(block(2, 3, 1_000_500, 60_000, [1, 2, 3, 4, 255, 6]));
    expect([heat.rows, heat.columns, heat.columnMs, heat.resolution]).toEqual([2, 3, 60_000, "minute"]);
    expect([heat.startMs, heat.endMs]).toEqual([1_000_500, 1_180_500]);
    expect([row(heat, 0), row(heat, 1)]).toEqual([
      [1, 2, 3],
      [4, NO_DATA, 6],
    ]);
    expect([heat.max(0), heat.max(1), heat.at(0, 1_180_500)]).toEqual([3, 6, NO_DATA]);
  });

  test("is rejected when truncated, of another format or inconsistent", () => {
    const whole = block(2, 3, 0, 1000, [1, 2, 3, 4, 5, 6]);
    expect(() => HeatBlock.parse(whole.slice(0, 37))).toThrow(HeatBlockError);
    expect(() => HeatBlock.parse(whole.slice(0, 12))).toThrow(HeatBlockError);
    expect(() => HeatBlock.parse(new ArrayBuffer(40))).toThrow("CSH1");
    expect(() => HeatBlock.parse(block(1, 1, 0, 0, [1]))).toThrow(HeatBlockError);
  });
});

describe("a live window", () => {
  const u8 = (...values: number[]) => Uint8Array.from(values);

  test("puts each second into its column and leaves a gap without samples", () => {
    const heat = new HeatBlock(1, 5, 1000, 9_500);
    heat.push(7000, 1000, u8(70));
    heat.push(8000, 1000, u8(80));
    heat.push(10_000, 1000, u8(100));
    expect(row(heat, 0)).toEqual([NO_DATA, 70, 80, NO_DATA, 100]);
  });

  test("has neither gaps nor duplicates with jittered samples", () => {
    const heat = new HeatBlock(1, 5, 1000, 5000);
    const ends = [1010, 1980, 3049, 3990, 5030, 6020];
    ends.slice(1).forEach((end, index) => {
      heat.push(end, end - (ends[index] ?? 0), u8(10 + index));
    });
    expect(row(heat, 0)).toEqual([10, 11, 12, 13, 14]);
  });

  test("stores the maximum of the samples of a column", () => {
    const heat = new HeatBlock(2, 3, 4000, 11_000);
    for (const [index, value] of [3, 190, 5, NO_DATA].entries())
      heat.push(9000 + 1000 * index, 1000, u8(value, NO_DATA));
    expect(row(heat, 0).at(-1)).toBe(190);
    expect(row(heat, 1)).toEqual([NO_DATA, NO_DATA, NO_DATA]);
  });

  test("drops columns that left the window, also after a long time without samples", () => {
    const heat = new HeatBlock(1, 3, 1000, 2500);
    heat.push(2000, 1000, u8(20));
    heat.advance(500_000);
    expect(row(heat, 0)).toEqual([NO_DATA, NO_DATA, NO_DATA]);
    expect(heat.endMs).toBe(501_000);
  });

  test("merges history behind its own samples", () => {
    const heat = new HeatBlock(2, 4, 1000, 3500);
    heat.push(4000, 1000, u8(40, 41));
    heat.fill(HeatBlock.parse(block(2, 3, 1000, 1000, [11, 12, 13, 21, 22, 23])));
    expect(row(heat, 0)).toEqual([NO_DATA, 11, 12, 40]);
    expect(row(heat, 1)).toEqual([NO_DATA, 21, 22, 41]);
    expect(heat.fills).toBe(1);
  });

  test("spreads a coarser history over its finer columns", () => {
    const heat = new HeatBlock(1, 4, 1000, 3500);
    heat.fill(HeatBlock.parse(block(1, 2, 0, 2000, [5, 9])));
    expect(row(heat, 0)).toEqual([5, 5, 9, 9]);
  });
});

test.each([
  [1, 2, 2],
  [NO_DATA, 2, 2],
  [3, NO_DATA, 3],
  [NO_DATA, NO_DATA, NO_DATA],
])("the larger of %s and %s is %s", (a, b, expected) => expect(largerCell(a, b)).toBe(expected));

test.each([
  [1010, 1980, 1, 1],
  [0, 4000, 0, 3],
  [1600, 1900, 1, 1],
  [1200, 1300, 1, 1],
])("an interval from %s to %s belongs to the seconds %s to %s", (start, end, first, last) =>
  expect(coveredSteps(start, end, 1000)).toEqual([first, last]),
);
