import { expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import type { FleetMetric } from "../lib/metrics";
import { COLOURINGS } from "./colourings";
import { figureOf } from "./FleetMap";
import { FleetFigures, fleetStore, frameOfNodes } from "./fleetStore";
import { groupNodes } from "./groups";
import { hotSpotReasons, hottestCpu } from "./hotspots";

type Node = Schemas["NodeSummary"];
type Cpus = { busiest_cpu?: number; softirq_cpu?: number };
type Metrics = Partial<Record<FleetMetric, number>>;

const node = (id: number, name: string, figures: Cpus & Metrics = {}, over: Partial<Node> = {}): Node => {
  const { busiest_cpu = null, softirq_cpu = null, ...metrics } = figures;
  const about = { time: "", busiest_cpu, softirq_cpu, metrics };
  return { id, name, health: "live", labels: {}, drivers: [], kernel: "6.12", figures: about, ...over } as Node;
};

const NODES = [
  node(3, "db-10", { softirq_cpu_percent: 20, softirq_cpu: 2, busiest_cpu_percent: 97, busiest_cpu: 5 }),
  node(9, "db-2", { softirq_cpu_percent: 94, softirq_cpu: 7, softnet_dropped_per_s: 0 }, { health: "stale" }),
  node(4, "web-1", {}, { labels: { rack: "r1" }, drivers: ["igb"] }),
  node(5, "web-2", { softnet_dropped_per_s: 3, softirq_cpu_percent: 1 }),
];
const FIGURES = new FleetFigures(frameOfNodes(NODES));
const names = (nodes: Node[]) => nodes.map(({ name }) => name);

test("wrong-node bytes are shown for nodes that are hot spots for another reason", () => {
  const figures = new FleetFigures(
    frameOfNodes([
      node(1, "hot", { softirq_cpu_percent: 94, wrong_node_percent: 60 }),
      node(2, "cool", { softirq_cpu_percent: 4, wrong_node_percent: 90 }),
    ]),
  );
  expect(hotSpotReasons(1, figures)).toEqual(["softirq 94\u00a0%", "wrong-node bytes 60\u00a0%"]);
  expect(hotSpotReasons(2, figures)).toEqual([]);
});

test("figures are looked up by node; unknown ones are NaN, not zero", () => {
  expect(FIGURES.get(9, "softirq_cpu_percent")).toBe(94);
  expect(FIGURES.get(9, "softirq_cpu")).toBe(7);
  expect(FIGURES.get(9, "softnet_dropped_per_s")).toBe(0);
  expect(FIGURES.get(4, "softirq_cpu_percent")).toBeNaN();
  expect(FIGURES.get(4, "softirq_cpu")).toBeNaN();
  expect(FIGURES.get(77, "softirq_cpu_percent")).toBeNaN();
});

test("a node missing in the frame is new", () => {
  expect([FIGURES.health(9), FIGURES.health(3), FIGURES.health(77)]).toEqual(["stale", "live", "new"]);
});

test("a node that stops being live keeps its last figures with their time, until it is live again", () => {
  const at = (timeMs: number, health: Node["health"], percent: number) => {
    const figures = health === "live" ? { softirq_cpu_percent: percent } : {};
    return { ...frameOfNodes([node(3, "db", figures, { health })]), time_ms: timeMs };
  };
  const live = new FleetFigures(at(1000, "live", 20));
  const stale = new FleetFigures(at(5000, "stale", 0), live);
  const away = new FleetFigures(at(6000, "away", 0), stale);
  const back = new FleetFigures(at(7000, "live", 30), away);
  const last = [live, stale, away, back].map((figures) => figures.last(3, "softirq_cpu_percent"));
  expect(last).toEqual([null, { value: 20, timeMs: 1000 }, { value: 20, timeMs: 1000 }, null]);
  expect(stale.get(3, "softirq_cpu_percent")).toBeNaN();
});

test("without frames all live nodes become stale and keep their figures", () => {
  const silent = new FleetFigures({ ...frameOfNodes(NODES), time_ms: 1000 }).silenced();
  expect([silent.health(3), silent.get(3, "softirq_cpu_percent")]).toEqual(["stale", Number.NaN]);
  expect(silent.last(3, "softirq_cpu_percent")).toEqual({ value: 20, timeMs: 1000 });
});

test("silence is an outage only while frames are awaited", () => {
  vi.useFakeTimers();
  const frame = { ...frameOfNodes(NODES), time_ms: 1000 };
  const watch = () => fleetStore.watch({ q: "", group: null, within: null, ids: [] });
  const health = () => fleetStore.getLatest().health(3);
  const leave = watch();
  fleetStore.consume(frame);
  leave();
  vi.advanceTimersByTime(60_000);
  watch();
  expect(health()).toBe("live");
  vi.advanceTimersByTime(60_000);
  expect(health()).toBe("stale");
  vi.useRealTimers();
});

test.each([
  [3, ["busy, softirq 20\u00a0%"]],
  [9, ["softirq 94\u00a0%"]],
  [4, []],
  [5, ["dropped 3.00\u00a0/s"]],
])("node %i has the reasons %j", (id, expected) => expect(hotSpotReasons(id, FIGURES)).toEqual(expected));

test("the hottest CPU is the one with most softirq only if softirq is high", () => {
  expect([hottestCpu(9, FIGURES).cpu, hottestCpu(3, FIGURES).cpu]).toEqual([7, 5]);
});

test("nodes are grouped by label, kernel or driver, each group in numeric order", () => {
  expect(groupNodes(NODES, "label:rack").map((group) => [group.name, names(group.nodes)])).toEqual([
    ["r1", ["web-1"]],
    ["without rack", ["db-2", "db-10", "web-2"]],
  ]);
  expect(groupNodes(NODES, "driver").map(({ name }) => name)).toEqual(["igb", "without driver"]);
  expect(groupNodes([], undefined)).toEqual([]);
});

test("a node's figure includes its CPU for figures of one CPU", () => {
  const text = (id: number, colour: keyof typeof COLOURINGS) =>
    figureOf(NODES.find((one) => one.id === id) as Node, FIGURES, COLOURINGS[colour]);
  expect([text(9, "softirq"), text(5, "drops"), text(4, "rtt")]).toEqual([
    "94\u00a0% on CPU 7",
    "3.00\u00a0/s",
    "no data",
  ]);
});

test.each([
  ["drops", 1, 0],
  ["drops", 100, 0.5],
  ["drops", 10_000, 1],
  ["rtt", 1000, 0.5],
  ["softirq", 25, 0.25],
] as const)("%s of %d is at %d of the colour scale", (colour, value, position) => {
  expect(COLOURINGS[colour].position(value)).toBeCloseTo(position);
});
