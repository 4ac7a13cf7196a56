import { describe, expect, test } from "vitest";
import { chainOf, hopBetween, inKeptOrder, localityOf, type NetTask, placesOf, type RxPlacement } from "./chain";
import { inventory, irq, machine } from "./testing";

// Two packages, one node each with two L3s of two cores with two threads: CPUs 0-7 and their siblings 8-15.
const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 2, coresEach: 2, threads: 2 });
const withL2 = {
  ...topology,
  caches: [...topology.caches, { level: 2, type: "Unified", size_bytes: null, cpus: "0-1,8-9" }],
};
const apart = { ...withL2, caches: withL2.caches.map((one) => (one.level === 2 ? { ...one, cpus: "0,8" } : one)) };

describe("the hop from the softirq CPU to the task's CPU", () => {
  test.each([
    [0, 0, "cpu", "same CPU", null],
    [0, 8, "core", "same core", null],
    [0, 1, "l3", "share L3", null],
    [0, 2, "numa", "share no cache", "cache"],
    [0, 4, "remote", "other NUMA node", "numa"],
  ])("from %i to %i is %s", (softirq, task, nearness, words, wrong) => {
    expect(hopBetween(placesOf(topology), softirq, task)).toEqual({ nearness, words, wrong });
  });

  test("within a shared L2 is near", () => {
    expect(hopBetween(placesOf(withL2), 0, 1)).toEqual({ nearness: "l2", words: "share L2", wrong: null });
  });

  test("within a shared L3 says that the L2 is not shared, where there are any", () => {
    expect(hopBetween(placesOf(apart), 0, 1)).toEqual({ nearness: "l3", words: "share L3, no L2", wrong: null });
  });

  test("is not known to an offline CPU, and not where the machine tells of no caches", () => {
    const cpus = topology.cpus.map((cpu) => (cpu.cpu === 1 ? { ...cpu, online: false } : cpu));
    expect(hopBetween(placesOf({ ...topology, cpus }), 0, 1)).toBeNull();
    expect(hopBetween(placesOf({ ...topology, caches: [] }), 0, 1)).toBeNull();
  });
});

const placement = (over: Partial<RxPlacement> = {}): RxPlacement => ({
  netdev: "eth0",
  queue: "rx-41",
  irq: 41,
  cpu: 0,
  how: "rss",
  sockets: 3,
  rx_bytes_per_s: 1000,
  tx_bytes_per_s: 0,
  ...over,
});
const task = (cpu: number, ...rx_placements: RxPlacement[]): NetTask => ({
  pid: 812,
  started_ticks: 1,
  name: "nginx",
  cgroup: null,
  threads: 1,
  bound: false,
  affinity: "0-15",
  allowed: "0-15",
  cpu,
  cpu_share: 0.5,
  idle_s: 0,
  rx_placements,
  user: null,
  command: null,
  unit: null,
  listens: [],
  clients: [],
  params: {},
  cpu_cgroup: null,
  kernel: false,
  realtime: false,
});
const PLACES = placesOf(topology);
const INVENTORY = inventory([irq(41)]);

test("each way of a task is a line of its own, the busiest first, with the NUMA nodes it passes", () => {
  const links = chainOf([task(4, placement(), placement({ cpu: 5, rx_bytes_per_s: 9000 }))], PLACES, INVENTORY);
  expect(links.map(({ hop, nodes, offNode }) => [hop?.words, nodes.softirq, nodes.task, offNode])).toEqual([
    ["share L3", 1, 1, true],
    ["other NUMA node", 0, 1, false],
  ]);
});

test("what is not known says why, and is neither near nor wrong", () => {
  const unknown = placement({ queue: null, irq: null, cpu: null, how: null });
  const [link] = chainOf([task(0, unknown)], PLACES, INVENTORY);
  expect(link?.hop).toBeNull();
  expect(Object.keys(link?.why ?? {})).toEqual(["queue", "irq", "cpu", "hop"]);
  expect(localityOf(link === undefined ? [] : [link])).toEqual({ near: 0, wrong: 0, unknown: 1 });
});

test("a virtual device's missing queue has its own reason", () => {
  const virtual = { ...INVENTORY, netdevs: INVENTORY.netdevs.map((netdev) => ({ ...netdev, virtual: true })) };
  const [link] = chainOf([task(0, placement({ queue: null, irq: null, how: "softirq" }))], PLACES, virtual);
  expect(link?.why).toEqual({
    queue: "A virtual device has no hardware queue that its packets come through.",
    irq: "A virtual device has no interrupt of its own.",
  });
});

test("locality weighs by received bytes", () => {
  const links = chainOf(
    [task(0, placement({ rx_bytes_per_s: 3000 }), placement({ cpu: 4, rx_bytes_per_s: 1000 }))],
    PLACES,
    INVENTORY,
  );
  expect(localityOf(links)).toEqual({ near: 0.75, wrong: 0.25, unknown: 0 });
  expect(localityOf([])).toBeNull();
});

test("lines keep their places when traffic changes, and new ones follow", () => {
  const links = chainOf([task(0, placement({ cpu: 2 }), placement({ cpu: 0 }), placement({ cpu: 1 }))], PLACES, null);
  const order = links
    .map(({ key }) => key)
    .slice(1)
    .reverse();
  expect(inKeptOrder(links, order).map(({ placement: { cpu } }) => cpu)).toEqual([2, 1, 0]);
});
