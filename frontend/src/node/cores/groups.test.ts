import { describe, expect, test } from "vitest";
import { machine } from "../testData";
import { columnsOf, groupsOf } from "./groups";

const shape = (packages: number, nodesEach: number, cachesEach: number, coresEach: number, threads = 2) =>
  machine({ packages, nodesEach, cachesEach, coresEach, threads });

describe("groups of CPUs that share an L3", () => {
  test("have siblings of a core adjacent, and names with the cache's number and size", () => {
    const groups = groupsOf(shape(2, 1, 1, 3));
    expect(groups.map(({ name, detail, node, cpus }) => [name, detail, node, cpus])).toEqual([
      ["L3 0", "8\u00a0MiB", 0, [0, 6, 1, 7, 2, 8]],
      ["L3 1", "8\u00a0MiB", 1, [3, 9, 4, 10, 5, 11]],
    ]);
  });

  test("without a known L3 are NUMA nodes, named by their CPUs", () => {
    const topology = { ...shape(1, 2, 1, 2, 1), caches: [] };
    expect(groupsOf(topology).map(({ name, detail }) => [name, detail])).toEqual([
      ["CPUs 0-1", ""],
      ["CPUs 2-3", ""],
    ]);
  });

  test("of a large machine have at most 16 CPUs", () => {
    const groups = groupsOf(shape(2, 1, 1, 36));
    expect(groups).toHaveLength(10);
    expect(Math.max(...groups.map(({ cpus }) => cpus.length))).toBe(15);
    expect(groups[0]).toMatchObject({ name: "L3 0", detail: "CPUs 0-7,72-78", cpus: expect.arrayContaining([0, 72]) });
  });

  test("contain only online CPUs", () => {
    const topology = shape(1, 1, 1, 2, 1);
    const offline = { cpu: 2, core: null, package: null, numa_node: null, online: false, siblings: "", capacity: null };
    expect(groupsOf({ ...topology, cpus: [...topology.cpus, offline] }).map(({ cpus }) => cpus)).toEqual([[0, 1]]);
  });
});

describe("columns", () => {
  test.each([
    ["two packages", shape(2, 2, 2, 4), ["package 0: nodes 0, 1 · 32 CPUs", "package 1: nodes 2, 3 · 32 CPUs"]],
    ["one small package", shape(1, 1, 2, 8), ["package 0: node 0 · 32 CPUs"]],
    ["one large package", shape(1, 2, 2, 8), ["package 0: node 0 · 32 CPUs", "package 0: node 1 · 32 CPUs"]],
    [
      "four packages",
      shape(4, 1, 1, 8),
      ["packages 0, 1: nodes 0, 1 · 32 CPUs", "packages 2, 3: nodes 2, 3 · 32 CPUs"],
    ],
    ["eight packages of one CPU", shape(8, 1, 1, 1, 1), ["packages 0-7: nodes 0-7 · 8 CPUs"]],
    ["a package with one L3", shape(1, 1, 1, 20), ["package 0: node 0 · 40 CPUs"]],
  ])("of %s", (_, topology, expected) => {
    const columns = columnsOf(groupsOf(topology));
    expect(columns.map(({ title, detail }) => `${title}: ${detail}`)).toEqual(expected);
  });

  test("of machines of any size contain every CPU once", () => {
    for (const cpus of [1, 6, 24, 40, 64, 96, 128]) {
      const topology = shape(1, 2, 1, cpus);
      const found = columnsOf(groupsOf(topology)).flatMap((column) => column.cpus);
      expect(found.toSorted((a, b) => a - b)).toEqual(topology.cpus.map(({ cpu }) => cpu));
    }
  });
});
