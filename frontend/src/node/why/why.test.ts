import { expect, test } from "vitest";
import { indexTopology, type NetTask, type RxPlacement, rxPathsOf } from "../tasks/rxPath";
import { inventory, irq, machine } from "../testData";
import { explain, type Facts, rankText, selectedFocus } from "./why";

// Two NUMA nodes with one L3 of four CPUs each: CPUs 0-3 and 4-7.
const topology = machine({ packages: 2, nodesEach: 1, cachesEach: 1, coresEach: 4, threads: 1 });
const INVENTORY = inventory([41, 42, 43].map((number) => irq(number, { effective: "2", requested: "2" })));

const placement = (over: Partial<RxPlacement> = {}): RxPlacement => ({
  ...{ netdev: "eth0", queue: "rx-41", irq: 41, cpu: 2, how: "rss", sockets: 12, rfs: false },
  ...{ rx_bytes_per_s: 1e6, tx_bytes_per_s: 0, ...over },
});
const task = (cpu: number, ...rx_placements: RxPlacement[]): NetTask => ({
  ...{ pid: 812, started_ticks: 1, name: "envoy", cgroup: null, threads: 4, bound: false, affinity: "0-7" },
  ...{ allowed: "0-7", cpu, cpu_share: 0.5, idle_s: 0, rx_placements, user: null, command: null, unit: null },
  ...{
    listens: [],
    clients: [],
    params: {},
    cpu_cgroup: null,
    pod: null,
    kernel: false,
    realtime: false,
    threads_differ: false,
    agent: false,
  },
  coscheduled: null,
  flows: [],
  pod: null,
});
const facts = (over: Partial<Facts> = {}, tasks: NetTask[] = [task(5, placement())]): Facts => ({
  topology,
  inventory: INVENTORY,
  paths: rxPathsOf(tasks, indexTopology(topology), INVENTORY),
  tasks: [{ pid: 9, name: "java", cpu: 3, cpu_share: 0.6 }],
  rates: new Map([
    ["41", new Map([[2, 300]])],
    ["42", new Map([[2, 100]])],
    ["43", new Map([[2, 100]])],
    ["LOC", new Map([[2, 900]])],
  ]),
  busy: [5, 5, 92, 60, 0, 0, 0, 0],
  softirq: [0, 0, 85, 0, 0, 0, 0, 0],
  ...over,
});
const texts = (found: ReturnType<typeof explain>) => found.steps.map(({ name, text }) => [name, text]);

test("a hot CPU is explained by its queues, the costliest interrupt and where the data are read", () => {
  const found = explain(facts(), { cpu: 2, irq: null }, true);
  expect(`${found.lead} ${found.rest}`).toBe(
    "All 3 queues of eth0 interrupt CPU 2. IRQ 41 causes 51 of its 92 points; envoy reads the data on another NUMA node.",
  );
  expect(texts(found)).toEqual([
    ["task", "envoy 812"],
    ["socket", "12 sockets"],
    ["queue", "eth0 rx-41"],
    ["IRQ", "41"],
    ["core", "CPU 2"],
    ["cache", "L3 0 → L3 1"],
    ["NUMA", "node 0 → node 1"],
  ]);
  expect(found.steps.filter(({ bad }) => bad).map(({ name }) => name)).toEqual(["core", "cache", "NUMA"]);
  expect(found.steps.filter(({ cut }) => cut).map(({ name }) => name)).toEqual(["core", "cache"]);
  expect(found.steps.at(-1)?.figure).toBe("100 % wrong-node");
});

test("a task within the cache has no broken link", () => {
  const found = explain(facts({}, [task(1, placement())]), { cpu: 2, irq: null }, false);
  expect(found.rest).toBe("IRQ 41 causes 51 of its 92 points; envoy reads the data within the same L3 cache.");
  expect(found.steps.filter(({ cut, bad }) => cut || bad)).toEqual([]);
});

test("RFS is named where it passes the packets on", () => {
  const found = explain(facts({}, [task(5, placement({ rfs: true }))]), { cpu: 2, irq: null }, false);
  expect(found.rest).toBe(
    "IRQ 41 causes 51 of its 92 points; RFS passes its packets on to CPU 5, where envoy reads them.",
  );
  expect(found.steps.find(({ name }) => name === "queue")?.detail).toBe("RSS table · RFS: CPU 5, where envoy reads it");
  expect(found.steps.filter(({ bad }) => bad)).toEqual([]);
});

test("flows on the wrong node are others than that of the chain where this one stays within its cache", () => {
  const found = explain(
    facts({}, [task(1, placement({ rx_bytes_per_s: 3e6 })), { ...task(5, placement()), pid: 900 }]),
    { cpu: 2, irq: null },
    false,
  );
  expect(found.steps.at(-1)?.figure).toBe("other flows: 25 % wrong-node");
});

test("queues are counted once where receiving and sending have interrupts of their own", () => {
  const both = inventory(
    [41, 42, 43, 44].map((number) =>
      irq(number, { effective: "2", queues: [`${number % 2 ? "rx" : "tx"}-${number > 42 ? 1 : 0}`] }),
    ),
  );
  const rates = new Map([41, 42].map((number) => [String(number), new Map([[2, 100]])]));
  expect(explain(facts({ inventory: both, rates }, []), { cpu: 2, irq: null }, false).lead).toBe(
    "1 of 2 queues of eth0 interrupts CPU 2.",
  );
});

test("a CPU without interrupts has only the steps that exist", () => {
  const found = explain(facts(), { cpu: 3, irq: null }, true);
  expect(`${found.lead} ${found.rest}`).toBe(
    "No network queue interrupts CPU 3. It is 60 % busy, mostly with processes such as java 9.",
  );
  expect(texts(found)).toEqual([
    ["task", "java 9"],
    ["core", "CPU 3"],
    ["NUMA", "node 0"],
  ]);
  expect(texts(explain(facts({}, []), { cpu: 2, irq: null }, false))).toEqual([
    ["queue", "eth0 rx-41"],
    ["IRQ", "41"],
    ["core", "CPU 2"],
    ["NUMA", "node 0"],
  ]);
});

test("a step of a receiving process is unknown where its data are missing, with the reason", () => {
  const blind = placement({ queue: null, irq: null, cpu: 3, how: null });
  const found = explain(facts({}, [task(5, blind)]), { cpu: 3, irq: null }, true);
  const unknown = found.steps.filter(({ text }) => text === null);
  expect(unknown.map(({ name }) => name)).toEqual(["queue", "IRQ"]);
  for (const { why } of unknown) expect(why).toMatch(/\.$/);
});

test("without a known load no number is invented", () => {
  const unknown = facts({ busy: [], softirq: [], rates: null });
  expect(explain(unknown, { cpu: 2, irq: null }, false).rest).toBe("Its load is not known.");
});

test("further flows of the CPU are counted, and connections without a hardware queue", () => {
  const virtual = { ...INVENTORY.netdevs[0], name: "lo", virtual: true } as (typeof INVENTORY.netdevs)[number];
  const withLoopback = { ...INVENTORY, netdevs: [...INVENTORY.netdevs, virtual] };
  const lo = placement({ netdev: "lo", queue: null, irq: null, cpu: null, how: null, sockets: 38 });
  const both = facts({ inventory: withLoopback }, [task(5, placement(), placement({ irq: 42, queue: "rx-42" }), lo)]);
  const found = explain(both, { cpu: 2, irq: null }, false);
  expect([found.more, found.hidden]).toEqual([1, 38]);
});

test.each([
  ["cpu:3", { cpu: 3, irq: null }],
  ["irq:42", { cpu: 2, irq: 42 }],
  ["task:812:1", { cpu: 2, irq: 41 }],
  ["cpu:99", null],
  ["nic:eth0", null],
  [undefined, null],
])("the selection %s is about %o", (sel, focus) => expect(selectedFocus(facts(), sel)).toEqual(focus));

test("the hottest CPU is among the hottest while another states more", () => {
  expect(rankText([null, 92.4, 92], 1)).toBe("the hottest of 2");
  expect(rankText([95, 92], 1)).toBe("among the hottest of 2");
});
