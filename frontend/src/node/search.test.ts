import { expect, test } from "vitest";
import { shownTab, validateNodeSearch } from "./search";

const given = (search: Record<string, unknown>) =>
  Object.fromEntries(Object.entries(validateNodeSearch(search)).filter(([, value]) => value !== undefined));

test.each([
  [{}, {}],
  [
    { from: "1000", to: "61000" },
    { from: 1000, to: 61_000 },
  ],
  [{ from: "61000", to: "1000" }, {}],
  [{ from: "1000" }, {}],
  [{ from: "x", to: "y" }, {}],
  [
    { span: "3600", share: "irq", order: "load", tab: "numa", table: "irqs" },
    { span: 3600, share: "irq", order: "load", tab: "numa", table: "irqs" },
  ],
  [{ span: "7", share: "everything", order: "?", tab: "?" }, {}],
  [{ tab: "irqs" }, { tab: "interrupts", table: "irqs" }],
  [{ tab: "cores" }, { table: "cores" }],
  [{ hot: "0" }, { hot: 0 }],
  [{ hot: "-1" }, {}],
  [{ sel: "irq:41" }, { sel: "irq:41" }],
  [{ sel: "nic:eth0" }, { sel: "nic:eth0" }],
  [{ sel: "task:812:5551" }, { sel: "task:812:5551" }],
  [{ sel: "task:812" }, { sel: "task:812" }],
  [{ sel: "task:812:" }, {}],
  [{ sel: "irq:x" }, {}],
  [{ tasks: "-remote" }, { tasks: "-remote" }],
  [{ tasks: "?" }, {}],
  [{ process: "postgres" }, { process: "postgres" }],
  [{ sel: "<script>" }, {}],
  [
    { nic: "eth0", colour: "latency", point: "54x32", pps: "1000", frame: "1500", bound: "100", tab: "coalescing" },
    { nic: "eth0", colour: "latency", point: "54x32", pps: 1000, frame: 1500, bound: 100, tab: "coalescing" },
  ],
  [{ point: "54" }, { point: "54" }],
  [{ nic: "a b", colour: "?", point: "54x", pps: "0", frame: "1", bound: "" }, {}],
])("%o is parsed as %o", (search, expected) => expect(given(search)).toEqual(expected));

test.each([
  [{}, "interrupts"],
  [{ tab: "history", point: "54" }, "history"],
  [{ point: "54" }, "coalescing"],
  [{ table: "coalescing" }, "coalescing"],
  [{ tasks: "-remote" }, "numa"],
  [{ process: "postgres" }, "numa"],
  [{ sel: "irq:41" }, "interrupts"],
  [{ sel: "nic:eth0" }, "coalescing"],
])("a link with %o opens the tab %s", (search, tab) => expect(shownTab(validateNodeSearch(search))).toBe(tab));
