import { expect, test } from "vitest";
import { inventory, irq, machine } from "../testData";
import { groupFlows, searchFlows, sortFlows, sumOf, worstPath } from "./flowRows";
import { indexTopology, type NetTask, type RxPath, type RxPlacement, rxPathsOf } from "./rxPath";

const PLACES = indexTopology(machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 4, threads: 1 }));
const EMPTY = inventory([irq(41)]);
const INVENTORY = { ...EMPTY, netdevs: EMPTY.netdevs.flatMap((dev) => [dev, { ...dev, name: "lo", virtual: true }]) };

const at = (queue: number, cpu: number, over: Partial<RxPlacement> = {}): RxPlacement => ({
  ...{ netdev: "eth0", queue: `rx-${queue}`, irq: 41 + queue, cpu, how: "rss", sockets: 3, rfs: false },
  ...{ rx_bytes_per_s: 1000, tx_bytes_per_s: 10, ...over },
});
const LOOPBACK = at(0, 0, { netdev: "lo", queue: null, irq: null, cpu: null, how: null });
const task = (pid: number, name: string, cpu: number, ...rx_placements: RxPlacement[]): NetTask => ({
  ...{ pid, started_ticks: 1, name, cgroup: null, threads: 1, bound: false, affinity: "0-7", allowed: "0-7" },
  ...{ cpu, cpu_share: 0.5, idle_s: 0, rx_placements, user: "www", command: null, unit: null, listens: [] },
  ...{
    clients: [],
    params: {},
    cpu_cgroup: null,
    kernel: false,
    realtime: false,
    threads_differ: false,
    agent: false,
    coscheduled: null,
  },
  flows: [],
  pod: null,
});
const paths = (...tasks: NetTask[]): RxPath[] => rxPathsOf(tasks, PLACES, INVENTORY);
const BOTH = paths(
  task(7, "nginx", 1, at(0, 1), at(1, 5, { rx_bytes_per_s: 9000 }), LOOPBACK),
  task(8, "redis", 2, at(0, 2), LOOPBACK),
);

test("the queues of one process are one row, and loopback one line with its reason and count", () => {
  const { rows, collapsed } = groupFlows(BOTH);
  expect(rows.map(({ task: { name }, paths: own }) => [name, own.length])).toEqual([
    ["nginx", 2],
    ["redis", 1],
  ]);
  expect(collapsed.map(({ reason, sockets, processes }) => [reason, sockets, processes])).toEqual([
    ["A virtual device has no hardware queue.", 6, 2],
  ]);
});

test("a process's row shows its longest hop and the sums of its queues", () => {
  const [nginx] = groupFlows(BOTH).rows;
  expect(worstPath(nginx?.paths ?? [])?.hop?.distance).toBe("remote");
  expect(sumOf(nginx?.paths ?? [], "rx_bytes_per_s")).toBe(10_000);
});

test.each([
  ["redis", 2],
  ["www", 5],
  ["irq 41", 2],
  ["IRQ 4", 0],
  ["cpu 5", 1],
  ["rx-0", 2],
  ["a(b", 0],
  [" ", 5],
])("the search “%s” finds %i placements", (text, count) => expect(searchFlows(BOTH, text)).toHaveLength(count));

test("rows are sorted by a column, then by name", () => {
  const { rows } = groupFlows(BOTH);
  const names = (sort: Parameters<typeof sortFlows>[1]) => sortFlows(rows, sort).map(({ task: { name } }) => name);
  expect(names("received")).toEqual(["redis", "nginx"]);
  expect(names("-hop")).toEqual(["nginx", "redis"]);
  expect(names("-task")).toEqual(["redis", "nginx"]);
});
