import { expect, test } from "vitest";
import { machine } from "../testData";
import { groupsOf } from "./groups";
import { byLoad, groupsByLoad } from "./hottest";

const GROUPS = groupsOf(machine({ packages: 1, nodesEach: 3, cachesEach: 1, coresEach: 2, threads: 1 }));
const levels =
  (...values: number[]) =>
  (cpu: number) =>
    values[cpu] ?? -1;

test("CPUs are sorted by load, equal ones by number", () => {
  expect(byLoad([3, 2, 1, 0], levels(5, 9, 5, 1))).toEqual([1, 0, 2, 3]);
});

test("groups are sorted by their hottest CPU, and their CPUs by load", () => {
  const sorted = groupsByLoad(GROUPS, levels(5, 9, 50, 70, 1));
  expect(sorted.map(({ id, cpus }) => [id, cpus])).toEqual([
    [1, [3, 2]],
    [0, [1, 0]],
    [2, [4, 5]],
  ]);
});
