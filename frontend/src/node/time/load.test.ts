import { expect, test } from "vitest";
import { HeatBlock, NO_DATA } from "../../charts/heatBlock";
import { frame } from "../testData";
import { hottestOf, lastShares, loadOf, meanOfCells, NO_LOAD, topOf, withHistory } from "./load";

const shares = (...percents: (number | null)[]) =>
  Uint8Array.from(percents, (value) => (value === null ? NO_DATA : 2 * value));
const top = (cpu: number, behindSinceMs: number | null = null) => ({ cpu, behindSinceMs });

test("the hottest CPU stays until another is hotter by 5 points, or others were hotter for 10 s", () => {
  expect(topOf(shares(80, 83), null, 0)).toEqual(top(1));
  expect(topOf(shares(80, 85), top(0), 0)).toEqual(top(1));
  expect(topOf(shares(80, 83), top(0), 1000)).toEqual(top(0, 1000));
  expect(topOf(shares(80, 70, 83), top(0, 1000), 10_999)).toEqual(top(0, 1000));
  expect(topOf(shares(80, 70, 83), top(0, 1000), 11_000)).toEqual(top(2));
  expect(topOf(shares(80, 80), top(0, 1000), 2000)).toEqual(top(0));
  expect(topOf(shares(null, 5), top(0), 0)).toEqual(top(1));
  expect(topOf(shares(null), null, 0)).toBeNull();
});

test("the load is the mean of frames, unknown where it is in one of them, with the hottest CPU of each share", () => {
  const of = (...busy: number[]) => frame({ cpus: 3, shares: { busy, softirq: [2, 0, 0] } });
  const load = loadOf([of(100, 180, 20), of(50, 160, NO_DATA)], NO_LOAD);
  expect([...load.shares.busy]).toEqual([75, 170, NO_DATA]);
  expect(hottestOf(load.shares.busy, load.tops.busy)).toEqual({ cpu: 1, percent: 85 });
  expect(hottestOf(load.shares.softirq, load.tops.softirq)).toEqual({ cpu: 0, percent: 1 });
  expect(hottestOf(load.shares.irq, load.tops.irq)).toBeNull();
});

test("until the first frame, the load is the newest of history that is known", () => {
  const block = new HeatBlock(2, 10, 1000, 9500);
  expect(lastShares(block)).toBeNull();
  block.push(6000, 1000, new Uint8Array([80, NO_DATA]));
  block.push(7000, 1000, new Uint8Array([90, NO_DATA]));
  const newest = lastShares(block) ?? new Uint8Array();
  expect([...newest]).toEqual([90, NO_DATA]);
  expect(withHistory(NO_LOAD, "busy", newest).tops.busy).toEqual(top(0));
});

test("a CPU's load in a past range is the mean of its cells with data, and unknown without any", () => {
  const cells = new Uint8Array([200, NO_DATA, 100, 0, 0, 20, NO_DATA, NO_DATA, NO_DATA]);
  expect([...meanOfCells({ rows: 3, columns: 3, cells })]).toEqual([150, 7, NO_DATA]);
});
