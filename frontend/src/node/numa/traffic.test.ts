import { expect, test } from "vitest";
import { entry } from "../testData";
import { memoryTraffic, missing, type NodeTraffic, short, trafficMatrix } from "./traffic";

const GIB = 1024 ** 3;
const nodes = [{ id: 0 }, { id: 2 }];
const pair = (from_node: number, to_node: number, cpus: number | null, bytes_per_s: number | null): NodeTraffic => ({
  ...{ from_node, to_node, cpus, bytes_per_s },
});

test("bytes have a common unit, and what is unknown stays so", () => {
  const found = trafficMatrix([pair(0, 0, 1, 3 * GIB), pair(0, 2, 1, GIB / 2), pair(2, 0, 0, 0)], nodes);
  expect(found?.unit).toBe("GiB/s");
  expect(found?.values).toEqual([
    [3, 0.5],
    [0, null],
  ]);
  expect(found?.title(0.5)).toBe("512\u00a0MiB/s");
});

test("without bytes there are CPUs' worth of accesses, without these nothing", () => {
  const derived = [pair(0, 0, 0.75, null), pair(0, 2, 0.25, null), pair(2, 0, 0, null), pair(2, 2, 2, null)];
  expect(trafficMatrix(derived, nodes)).toMatchObject({
    ...{ unit: "CPUs", isBytes: false },
    values: [
      [0.75, 0.25],
      [0, 2],
    ],
  });
  expect(trafficMatrix([pair(0, 0, null, null)], nodes)).toBeNull();
  expect(trafficMatrix([], nodes)).toBeNull();
});

test.each([
  [0.04, "0"],
  [0.05, "0.1"],
  [3.14, "3.1"],
  [9.96, "10"],
  [117.2, "117"],
])("%d is shown as %s", (value, text) => {
  expect(short(value)).toBe(text);
});

test("the traffic of a memory is the sum over all CPUs, unknown if a part is", () => {
  const pairs = [pair(0, 0, 1, GIB), pair(2, 0, 1, GIB), pair(0, 2, 1, null), pair(2, 2, 1, GIB)];
  expect([memoryTraffic(pairs, 0), memoryTraffic(pairs, 2), memoryTraffic([], 0)]).toEqual([2 * GIB, null, null]);
});

test("only busy processes of unknown memory are missing", () => {
  const unknown = { bytes_by_node: null, unknown: "No permission." };
  expect(missing([entry(), entry({ ...unknown, cpu_share: 0 }), entry({ ...unknown, cpu_share: 0.2 })])).toBe(1);
});
