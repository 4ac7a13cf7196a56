import { describe, expect, test } from "vitest";
import { stableOrder } from "../stableOrder";
import { inventory, irq, machine } from "../testData";
import { hopBetween, indexTopology, localityShares, type NetTask, type RxPlacement, rxPathsOf } from "./rxPath";

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
  ])("from %i to %i is %s", (softirq, task, distance, label, crosses) => {
    expect(hopBetween(indexTopology(topology), softirq, task)).toEqual({ distance, label, crosses });
  });

  test("within a shared L2", () => {
    expect(hopBetween(indexTopology(withL2), 0, 1)).toEqual({ distance: "l2", label: "share L2", crosses: null });
  });

  test("within a shared L3 states that the L2 is not shared, where L2 caches are reported", () => {
    expect(hopBetween(indexTopology(apart), 0, 1)).toEqual({ distance: "l3", label: "share L3, no L2", crosses: null });
  });

  test("is unknown for an offline CPU and without cache data", () => {
    const cpus = topology.cpus.map((cpu) => (cpu.cpu === 1 ? { ...cpu, online: false } : cpu));
    expect(hopBetween(indexTopology({ ...topology, cpus }), 0, 1)).toBeNull();
    expect(hopBetween(indexTopology({ ...topology, caches: [] }), 0, 1)).toBeNull();
  });
});

const placement = (over: Partial<RxPlacement> = {}): RxPlacement => ({
  netdev: "eth0",
  queue: "rx-41",
  irq: 41,
  cpu: 0,
  how: "rss",
  rfs: false,
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
  pod: null,
  kernel: false,
  realtime: false,
  threads_differ: false,
  agent: false,
  coscheduled: null,
  flows: [],
});
const PLACES = indexTopology(topology);
const INVENTORY = inventory([irq(41)]);

test("each RX placement of a task is a row with its NUMA nodes, most traffic first", () => {
  const links = rxPathsOf([task(4, placement(), placement({ cpu: 5, rx_bytes_per_s: 9000 }))], PLACES, INVENTORY);
  expect(links.map(({ hop, nodes, offNode }) => [hop?.label, nodes.softirq, nodes.task, offNode])).toEqual([
    ["share L3", 1, 1, true],
    ["other NUMA node", 0, 1, false],
  ]);
});

test("an unknown value has a reason and counts as neither local nor remote", () => {
  const unknown = placement({ queue: null, irq: null, cpu: null, how: null });
  const [link] = rxPathsOf([task(0, unknown)], PLACES, INVENTORY);
  expect(link?.hop).toBeNull();
  expect(Object.keys(link?.why ?? {})).toEqual(["queue", "irq", "cpu", "hop"]);
  expect(localityShares(link === undefined ? [] : [link])).toEqual({ local: 0, remote: 0, unknown: 1 });
});

test("a virtual device's missing queue has its own reason", () => {
  const virtual = { ...INVENTORY, netdevs: INVENTORY.netdevs.map((netdev) => ({ ...netdev, virtual: true })) };
  const [link] = rxPathsOf([task(0, placement({ queue: null, irq: null, how: "softirq" }))], PLACES, virtual);
  expect(link?.why).toEqual({
    queue: "A virtual device has no hardware queue.",
    irq: "A virtual device has no interrupt.",
  });
});

const flow = (over: Partial<NetTask["flows"][number]> = {}): NetTask["flows"][number] => ({
  ...{ protocol: "tcp", local: "10.0.0.1", local_port: 80, peer: "10.0.0.2", peer_port: 4242 },
  ...{ netdev: "eth0", queue: "rx-41", cpu: 0, rss_entry: 17, rx_bytes_per_s: 1000, ...over },
});
const WITH_RULES = {
  ...INVENTORY,
  netdevs: INVENTORY.netdevs.map((netdev) => ({
    ...netdev,
    flow_rules: {
      size: 8,
      complete: true,
      rules: [
        { location: 2, value: "flow-type tcp4 dst-port 443 action 41", ours: false, context_rule: "" },
        { location: 3, value: "flow-type tcp4 src-ip 10.0.0.2 dst-port 80 action 41", ours: true, context_rule: "" },
        { location: 4, value: "", ours: false, context_rule: "" },
      ],
    },
  })),
};

test.each([
  [placement(), [flow()], "RSS table entry 17"],
  [placement(), [17, 9, 3, 25].map((rss_entry) => flow({ rss_entry })), "RSS table entries 3, 9, 17 and others"],
  [placement(), [flow({ queue: "rx-9" })], "RSS table"],
  [placement({ how: "rule" }), [flow({ rss_entry: null })], "flow rule 3"],
  [placement({ how: "rule" }), [], "flow rule"],
  [placement({ how: "rps" }), [flow()], "RPS"],
  [placement({ rfs: true }), [flow()], "RSS table entry 17 · RFS: CPU 5, where nginx reads it"],
  [placement({ how: null, cpu: null, rfs: true }), [], "RFS: CPU 5, where nginx reads it"],
  [placement({ how: null, cpu: null }), [], ""],
])("what brought packets to %o is named", (where, flows, mechanism) => {
  expect(rxPathsOf([{ ...task(5, where), flows }], PLACES, WITH_RULES)[0]?.mechanism).toBe(mechanism);
});

test.each([
  [{ params: { ntuple: "on" } }, true, /accelerated RFS/],
  [{ params: { ntuple: "on" } }, false, /a flow rule of the NIC selects an RSS context/],
  [{ flow_rules: null }, true, /RSS key or indirection table could not be read/],
  [{ driver: "mlx5_core", flow_rules: null }, true, /mlx5_core does not report whether its hash is symmetric/],
])("with %o and RFS %s the reason for an unknown queue is %s", (of, rfs, why) => {
  const inventory = { ...WITH_RULES, netdevs: WITH_RULES.netdevs.map((netdev) => ({ ...netdev, ...of })) };
  const where = placement({ queue: null, irq: null, cpu: null, how: null, rfs });
  expect(rxPathsOf([task(0, where)], PLACES, inventory)[0]?.why.queue).toMatch(why);
});

test("with RFS the protocol work is where the task runs, while the polling CPU is off the NIC's node", () => {
  const [path] = rxPathsOf([task(0, placement({ cpu: 5, rfs: true }))], PLACES, INVENTORY);
  expect([path?.hop?.label, path?.nodes.softirq, path?.offNode]).toEqual(["same CPU", 0, true]);
});

test("locality is weighted by received bytes", () => {
  const links = rxPathsOf(
    [task(0, placement({ rx_bytes_per_s: 3000 }), placement({ cpu: 4, rx_bytes_per_s: 1000 }))],
    PLACES,
    INVENTORY,
  );
  expect(localityShares(links)).toEqual({ local: 0.75, remote: 0.25, unknown: 0 });
  expect(localityShares([])).toBeNull();
});

test("rows keep their order when traffic changes, and new ones follow", () => {
  const links = rxPathsOf([task(0, placement({ cpu: 2 }), placement({ cpu: 0 }), placement({ cpu: 1 }))], PLACES, null);
  const order = links
    .map(({ key }) => key)
    .slice(1)
    .reverse();
  expect(stableOrder(links, order).map(({ placement: { cpu } }) => cpu)).toEqual([2, 1, 0]);
});
