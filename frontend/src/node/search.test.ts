import { expect, test } from "vitest";
import { validateNodeSearch } from "./search";

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
    { span: "3600", share: "irq", order: "load", tab: "irqs" },
    { span: 3600, share: "irq", order: "load", tab: "irqs" },
  ],
  [{ span: "7", share: "everything", order: "?", tab: "?" }, {}],
  [{ sel: "irq:41" }, { sel: "irq:41" }],
  [{ sel: "nic:eth0" }, { sel: "nic:eth0" }],
  [{ sel: "irq:x" }, {}],
  [{ sel: "<script>" }, {}],
])("%o is understood as %o", (search, expected) => expect(given(search)).toEqual(expected));
