import { expect, test } from "vitest";
import { find, type Group, score } from "./paletteSearch";

const best = (texts: string[], query: string) => texts.toSorted((a, b) => score(b, query) - score(a, query))[0];

test.each<[string, string[], string]>([
  ["db-4", ["db-42", "db-4"], "db-4"],
  ["cpu 1", ["CPU 10 here", "CPU 1 here", "CPU 21 here"], "CPU 1 here"],
  ["irq rx 3", ["IRQ 30 ens5-Tx-Rx-1 here", "IRQ 31 ens5-Tx-Rx-3 here"], "IRQ 31 ens5-Tx-Rx-3 here"],
  ["new exp", ["Experiments", "New policy", "New experiment"], "New experiment"],
  ["npol", ["Network tasks", "New policy", "Pages"], "New policy"],
  ["sim 12", ["sim64-0001", "sim64-0012", "sim64-0120"], "sim64-0012"],
])("“%s” finds the best of %j", (query, texts, expected) => {
  expect(best(texts, query)).toBe(expected);
});

test.each(["xyz", "cpu x", "yc"])("“%s” does not fit “New policy CPU”", (query) => {
  expect(score("New policy CPU", query)).toBe(0);
});

const entry = (group: Group, text: string) => ({ group, text });

test("the group with the best entry comes first, and long groups are cut", () => {
  const nodes = Array.from({ length: 1000 }, (_, index) => entry("Nodes", `policy-${index}`));
  const [first, second] = find([...nodes, entry("Policies", "policy")], "Policy");
  expect([first?.group, first?.entries.length]).toEqual(["Policies", 1]);
  expect([second?.group, second?.entries.length, second?.more]).toEqual(["Nodes", 8, 992]);
});

test("without a query CPUs and interrupts are left out", () => {
  expect(find([entry("CPUs", "CPU 1"), entry("Nodes", "here")], " ").map(({ group }) => group)).toEqual(["Nodes"]);
});
