import { expect, test } from "vitest";
import { entry } from "../testData";
import {
  distanceRows,
  filterEntries,
  memoryParts,
  memoryShares,
  nodeColour,
  performanceText,
  runsOn,
  sharesText,
  sortEntries,
  whyUnknown,
} from "./numaTasks";

const GIB = 1024 ** 3;
const memory = {
  node: 0,
  total_bytes: 10 * GIB,
  free_bytes: 4 * GIB,
  file_bytes: 3 * GIB,
  anon_bytes: 2 * GIB,
  local_pages_per_s: 1,
  remote_pages_per_s: 0,
  bandwidth_bytes_per_s: null,
  write_bandwidth_bytes_per_s: null,
  latency_ns: null,
  write_latency_ns: null,
  local_bytes_per_s: null,
  remote_bytes_per_s: null,
};
const postgres = entry({ pid: 812, name: "postgres", bytes_by_node: { "0": 930, "10": 70 }, cpu_share: 0.4 });
const nginx = entry({ pid: 77, name: "nginx", unit: "web.service" }, { remote_share: 0.8, run_time: 1.5 });
const hidden = entry({ pid: 5, name: "agent", bytes_by_node: null, unknown: "No permission." }, { remote_share: null });
const entries = [nginx, hidden, postgres];
const pids = (of: typeof entries) => of.map(({ task }) => task.pid);

test("memory by node has shares by ascending node, and is unknown rather than empty", () => {
  expect(sharesText(memoryShares(postgres.task) ?? [])).toBe("93 % on node 0, 7 % on node 10");
  expect(memoryShares(hidden.task)).toBeNull();
  expect(memoryShares({ bytes_by_node: {} })).toEqual([]);
});

test("a process runs on the nodes with at least 5 % of its CPU time", () => {
  expect(runsOn({ cpu_nodes: { "1": 0.96, "0": 0.04 } }).map(({ node }) => node)).toEqual([1]);
  expect(runsOn({ cpu_nodes: { "1": 0.5, "0": 0.5 } }).map(({ node }) => node)).toEqual([0, 1]);
  expect(runsOn({ cpu_nodes: {} })).toEqual([]);
});

test.each([
  [undefined, [77, 5, 812]],
  ["name", [5, 77, 812]],
  ["-cpus", [812, 5, 77]],
  ["-remote", [77, 812, 5]],
  ["remote", [812, 77, 5]],
] as const)("sorted by %s the order is %j, unknown last", (sort, expected) => {
  expect(pids(sortEntries(entries, sort))).toEqual(expected);
});

test.each([
  ["", [77, 5, 812]],
  ["GIN", [77]],
  ["web.serv", [77]],
  ["81", [812]],
  ["nobody", []],
])("the filter “%s” finds %j", (text, expected) => {
  expect(pids(filterEntries(entries, text))).toEqual(expected);
});

test("memory of a node adds up to its size; what is unknown is not counted as the kernel's", () => {
  const kinds = (over: Partial<typeof memory> | { file_bytes: null; total_bytes: null }) =>
    memoryParts({ ...memory, ...over })?.map(({ kind, bytes }) => [kind, bytes / GIB]);
  expect(kinds({})).toEqual([
    ["anon", 2],
    ["file", 3],
    ["other", 1],
    ["free", 4],
  ]);
  expect(memoryParts({ ...memory, file_bytes: null })?.map(({ kind, bytes }) => [kind, bytes / GIB])).toEqual([
    ["anon", 2],
    ["unknown", 4],
    ["free", 4],
  ]);
  expect(memoryParts({ ...memory, total_bytes: null })).toBeNull();
});

test("distances are unknown unless every node has one to every other", () => {
  expect(
    distanceRows([
      { id: 0, distances: [10, 21] },
      { id: 1, distances: [21, 10] },
    ]),
  ).toEqual([
    [10, 21],
    [21, 10],
  ]);
  expect(distanceRows([{ id: 0, distances: [10, 21] }])).toBeNull();
  expect(distanceRows([])).toBeNull();
});

test("the performance of memory is in one text without what the firmware does not state", () => {
  const known = { ...memory, bandwidth_bytes_per_s: 128 * GIB, latency_ns: 76, write_latency_ns: 80 };
  expect(performanceText(known)).toBe("Reads: 128\u00a0GiB/s, 76 ns. Writes: 80 ns.");
  expect(performanceText(memory)).toBe("");
});

test("eight nodes have different colours", () => {
  expect(new Set([0, 1, 2, 3, 4, 5, 6, 7].map(nodeColour)).size).toBe(8);
  expect(nodeColour(8)).toBe(nodeColour(0));
});

test("the reason for an unknown prediction is the missing memory, or that the process used no CPU time", () => {
  const paused = entry({ pid: 9, name: "paused", bytes_by_node: { "0": 930 }, cpu_share: 0 });
  const unread = entry({ pid: 10, name: "unread", bytes_by_node: null, unknown: null, cpu_share: 0 });
  expect([paused, unread, hidden].map(({ task }) => whyUnknown(task))).toEqual([
    "It used no CPU time in the last interval.",
    "The agent has not read its memory by node yet.",
    "No permission.",
  ]);
});
