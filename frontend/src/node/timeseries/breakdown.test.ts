import { expect, test } from "vitest";
import { HeatBlock } from "../../charts/heatBlock";
import { inventory, irq } from "../testData";
import { hottestCpus, joinNics, missingLine, nicsOf, partLines } from "./breakdown";

/** 20 CPUs × 2 columns of a second: CPU n has n %, and CPU 0 no data. */
function block(): HeatBlock {
  const cells = new HeatBlock(20, 2, 1000, 1999);
  const shares = Uint8Array.from({ length: 20 }, (_, cpu) => (cpu === 0 ? 255 : 2 * cpu));
  cells.push(1000, 1000, shares);
  cells.push(2000, 1000, shares);
  return cells;
}

test("the 16 highest CPUs have lines in percent, in the order of their numbers", () => {
  const { step_ms, times_ms, values } = hottestCpus(block(), null);
  expect([step_ms, times_ms]).toEqual([1000, [0, 1000]]);
  expect(Object.keys(values).map(Number)).toEqual(Array.from({ length: 16 }, (_, index) => index + 4));
  expect(values["19"]).toEqual([19, 19]);
});

test("the selected CPU is among them if it has data", () => {
  expect(hottestCpus(block(), 1).values["1"]).toEqual([1, 1]);
  expect(hottestCpus(block(), 1).values["4"]).toBeUndefined();
  expect(hottestCpus(block(), 0).values["0"]).toBeUndefined();
});

test("the series of NICs are joined, and each line selects its NIC", () => {
  const series = { step_ms: 10, times_ms: [0, 10] };
  const joined = joinNics([
    { ...series, nic: "eth0", values: { rx_bytes_per_s: [1, 2] } },
    { ...series, nic: "eth1", values: { rx_bytes_per_s: [3, null] } },
  ]);
  expect(joined.values).toEqual({ "rx_bytes_per_s eth0": [1, 2], "rx_bytes_per_s eth1": [3, null] });
  expect(partLines("throughput", joined, null).map(({ name, sel }) => [name, sel])).toEqual([
    ["eth0 received", "nic:eth0"],
    ["eth1 received", "nic:eth1"],
  ]);
});

test("lines beyond the colours are dashed, and an interrupt has its name", () => {
  const values = Object.fromEntries([41, 42, 43, 44, 45, 46, 47].map((number) => [number, [1]]));
  const lines = partLines("interrupts", { step_ms: 1, times_ms: [0], values }, inventory([irq(41)]));
  expect(lines[0]).toEqual({ key: "41", name: "IRQ 41 eth0-TxRx-41", colour: "var(--rx)", sel: "irq:41" });
  expect(lines[6]).toMatchObject({ name: "IRQ 47", colour: "var(--rx)", dash: "5 3" });
});

test("a node without physical NICs shows its virtual ones, never lo", () => {
  const [nic] = inventory([]).netdevs;
  if (nic === undefined) throw new Error("The inventory has a NIC.");
  const named = (name: string, virtual: boolean) => ({ ...nic, name, virtual });
  const of = (...netdevs: (typeof nic)[]) => nicsOf({ ...inventory([]), netdevs });
  expect(of(named("lo", true), named("veth1", true))).toEqual(["veth1"]);
  expect(of(named("lo", true), named("veth1", true), named("ens5", false))).toEqual(["ens5"]);
});

test("a chart says why it has no line of the selected interrupt", () => {
  const lines = partLines("interrupts", { step_ms: 1, times_ms: [0], values: { 41: [1] } }, inventory([irq(41)]));
  expect(missingLine("interrupts", lines, "irq:41")).toBeNull();
  expect(missingLine("interrupts", lines, "cpu:1")).toBeNull();
  expect(missingLine("softirq", [], "irq:24")).toBeNull();
  expect(missingLine("interrupts", lines, "irq:24")).toMatch(/^IRQ 24 has no line: it is not among the busiest 16/);
});
