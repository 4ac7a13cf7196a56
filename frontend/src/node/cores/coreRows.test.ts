import { describe, expect, test } from "vitest";
import { machine } from "../testData";
import { cpuLocation } from "../topology";
import type { Topology } from "../types";
import { initiallyFolded, innermostGroups, rowHeight, rowsByLoad, rowsByStructure } from "./coreRows";
import { bandsOf } from "./heatmapGeometry";

const NOTHING: ReadonlySet<string> = new Set();
const labels = (topology: Topology, folded = NOTHING) =>
  rowsByStructure(topology, folded).map((row) => (row.kind === "cpu" ? row.cpu : row.label));

describe("rows in topology order", () => {
  test("for two CPUs that share everything: one heading and two rows", () => {
    const topology = machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 1 });
    expect(labels(topology)).toEqual(["package 0 · node 0 · L3 8 MiB", 0, 1]);
  });

  test("for twenty CPUs: headings where the topology divides, siblings of a core adjacent", () => {
    const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 5, threads: 2 });
    expect(labels(topology)).toEqual([
      "package 0 · node 0 · L3 8 MiB",
      ...[0, 10, 1, 11, 2, 12, 3, 13, 4, 14],
      "package 1 · node 1 · L3 8 MiB",
      ...[5, 15, 6, 16, 7, 17, 8, 18, 9, 19],
    ]);
  });

  test.each([
    [72, { packages: 2, nodesEach: 1, cachesEach: 2, coresEach: 9, threads: 2 }, 2 + 4],
    [256, { packages: 2, nodesEach: 4, cachesEach: 4, coresEach: 4, threads: 2 }, 2 + 8 + 32],
  ])("for %s CPUs contain every CPU exactly once, below %o", (cpus, shape, groups) => {
    const rows = rowsByStructure(machine(shape), NOTHING);
    const found = rows.flatMap((row) => (row.kind === "cpu" ? [row.cpu] : []));
    expect([...found].sort((a, b) => a - b)).toEqual(Array.from({ length: cpus }, (_, cpu) => cpu));
    expect(rows.filter((row) => row.kind === "group")).toHaveLength(groups);
  });

  test("for a large machine start folded into its innermost groups", () => {
    const topology = machine({ packages: 2, nodesEach: 4, cachesEach: 4, coresEach: 4, threads: 2 });
    const rows = rowsByStructure(topology, initiallyFolded(topology));
    expect(rows.some((row) => row.kind === "cpu")).toBe(false);
    const folded = rows.filter((row) => row.kind === "group" && row.folded);
    expect(folded).toHaveLength(32);
    expect(folded.every((row) => row.cpus.length === 8)).toBe(true);
    expect(initiallyFolded(machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 8, threads: 1 })).size).toBe(
      0,
    );
  });

  test("for a large machine with two groups start unfolded", () => {
    const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 18, threads: 2 });
    expect(initiallyFolded(topology).size).toBe(0);
  });

  test("for a folded group: its heading alone", () => {
    const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 1 });
    const [first] = innermostGroups(rowsByStructure(topology, NOTHING));
    expect(labels(topology, new Set([first ?? ""]))).toEqual([
      "package 0 · node 0 · L3 8 MiB",
      "package 1 · node 1 · L3 8 MiB",
      2,
      3,
    ]);
  });

  test("have offline CPUs last, in a separate group", () => {
    const topology = machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 1 });
    const offline = { cpu: 2, core: null, package: null, numa_node: null, online: false, siblings: "", capacity: null };
    const rows = rowsByStructure({ ...topology, cpus: [...topology.cpus, offline] }, NOTHING);
    expect(rows.slice(-2).map((row) => row.key)).toEqual(["/offline", "cpu:2"]);
  });

  test("omit caches and packages that the kernel does not report", () => {
    const topology = machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 1 });
    const bare = { ...topology, caches: [], cpus: topology.cpus.map((cpu) => ({ ...cpu, package: null })) };
    expect(labels(bare)).toEqual(["package ? · node 0", 0, 1]);
  });
});

test("rows by load: highest first, ties by CPU number", () => {
  const topology = machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 4, threads: 1 });
  const level = (cpu: number) => [5, 9, 5, 1][cpu] ?? 0;
  expect(rowsByLoad(topology, level).map((row) => row.cpus[0])).toEqual([1, 0, 2, 3]);
});

test("fewer CPUs get taller rows", () => {
  expect([2, 8, 64, 256].map(rowHeight)).toEqual([44, 22, 18, 15]);
  const topology = machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 1 });
  const { bands, height } = bandsOf(rowsByStructure(topology, NOTHING));
  expect(bands.map((band) => [band.top, band.cpus.length])).toEqual([
    [0, 0],
    [22, 1],
    [66, 1],
  ]);
  expect(height).toBe(110);
});

test("a CPU's location as text", () => {
  const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 2 });
  expect(cpuLocation(topology, 5)).toBe("package 0 · core 1 · shared with CPU 1 · NUMA node 0 · L3 of 4 CPUs");
  expect(cpuLocation(topology, 99)).toBe("not a CPU of this node");
});
