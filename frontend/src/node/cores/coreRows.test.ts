import { describe, expect, test } from "vitest";
import { machine } from "../testData";
import { cpuLocation } from "../topology";
import { bandsOf, densityOf, flatRows, nodeSpans, type Row, rowName, rowOfCpu, rowsOf } from "./coreRows";
import { type Column, columnsOf, groupsOf } from "./groups";

const columnOf = (topology = machine({ packages: 1, nodesEach: 2, cachesEach: 1, coresEach: 2, threads: 1 })) =>
  columnsOf(groupsOf(topology))[0] as Column;
const text = (rows: Row[]) => rows.map((row) => (row.kind === "cpu" ? row.cpu : row.label));
const ALL = new Set([0, 1]);

describe("rows", () => {
  test("of open groups follow their heading, those of folded groups are one", () => {
    expect(text(rowsOf(columnOf(), ALL))).toEqual(["L3 0", 0, 1, "L3 1", 2, 3]);
    const folded = rowsOf(columnOf(), new Set([1]));
    expect(text(folded)).toEqual(["L3 0", "L3 1", 2, 3]);
    expect(folded[0]).toMatchObject({ open: false, cpus: [0, 1] });
    expect(rowName(folded[0] as Row)).toBe("L3 0, maximum of CPUs 0-1");
  });

  test("of a group of one CPU have no heading", () => {
    const topology = machine({ packages: 4, nodesEach: 1, cachesEach: 1, coresEach: 1, threads: 1 });
    expect(text(rowsOf(columnOf(topology), new Set()))).toEqual([0, 1, 2, 3]);
  });

  test("name the package where a column has several", () => {
    const topology = machine({ packages: 3, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 1 });
    const labels = text(rowsOf(columnOf(topology), new Set()));
    expect(labels).toEqual(["package 0 · L3 0", "package 1 · L3 1", "package 2 · L3 2"]);
  });

  test("show a CPU by itself, or by its folded group", () => {
    const folded = rowsOf(columnOf(), new Set([1]));
    expect([1, 3, 9].map((cpu) => rowOfCpu(folded, cpu))).toEqual([0, 3, -1]);
  });
});

describe("the places of rows", () => {
  test("on a large machine: 13 px per CPU, 11 px per L3, 4 px between NUMA nodes", () => {
    const rows = rowsOf(columnOf(), ALL);
    const { bands, height } = bandsOf(rows, densityOf(64, 2, false));
    expect(bands.map(({ top, cpus }) => [top, cpus.length])).toEqual([
      ...[
        [0, 0],
        [11, 1],
        [24, 1],
      ],
      ...[
        [41, 0],
        [52, 1],
        [65, 1],
      ],
    ]);
    expect(height).toBe(78);
    expect(nodeSpans(rows, bands)).toEqual([
      { node: 0, top: 0, height: 37 },
      { node: 1, top: 41, height: 37 },
    ]);
  });

  test("on a phone: at least 24 px, headings with cells, no gaps", () => {
    const { bands, height } = bandsOf(rowsOf(columnOf(), ALL), densityOf(64, 1, true));
    expect(bands.every((band) => band.height === 24 && band.cpus.length > 0)).toBe(true);
    expect(height).toBe(6 * 24);
  });

  test("fewer CPUs get taller rows", () => {
    expect([2, 16, 32, 64, 256].map((cpus) => densityOf(cpus, 1, false).row)).toEqual([20, 20, 16, 13, 13]);
  });

  test("of a list without groups have no NUMA nodes", () => {
    const rows = flatRows([3, 0]);
    const { bands } = bandsOf(rows, densityOf(64, 2, false));
    expect([bands.map(({ top }) => top), nodeSpans(rows, bands)]).toEqual([[0, 13], []]);
  });
});

test("a CPU's location as text", () => {
  const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 2 });
  expect(cpuLocation(topology, 5)).toBe("package 0 · core 1 · shared with CPU 1 · NUMA node 0 · L3 of 4 CPUs");
  expect(cpuLocation(topology, 99)).toBe("not a CPU of this node");
});

test("the locations of all CPUs take reading a cache for each CPU, not all caches", () => {
  const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 16, coresEach: 2, threads: 2 });
  let read = 0;
  for (const cache of topology.caches) {
    const { cpus } = cache;
    Object.defineProperty(cache, "cpus", {
      get: () => {
        read += 1;
        return cpus;
      },
    });
  }
  for (const { cpu } of topology.cpus) cpuLocation(topology, cpu);
  expect(read).toBe(topology.cpus.length + topology.caches.length);
});
