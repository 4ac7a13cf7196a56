import { expect, test } from "vitest";
import { commonLabels, suggestedLabels } from "./labelSuggestions";

const nodes: { labels: Record<string, string> }[] = [
  { labels: { rack: "r10", role: "db" } },
  { labels: { rack: "r2", role: "db" } },
  { labels: {} },
];

test("the labels of most nodes are first, then by name", () => {
  expect(commonLabels(nodes)).toEqual(["role=db", "rack=r2", "rack=r10"]);
});

test.each([
  ["", ["role=db", "rack=r2", "rack=r10"]],
  ["ra", ["role=db", "rack=r2", "rack=r10"]],
  ["role=web ", ["role=web rack=r2", "role=web rack=r10"]],
  ["role=web,ra", ["role=web,rack=r2", "role=web,rack=r10"]],
])("suggestions complete the last word of “%s” and name no label twice", (line, lines) => {
  expect(suggestedLabels(commonLabels(nodes), line)).toEqual(lines);
});
