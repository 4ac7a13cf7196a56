import { expect, test } from "vitest";
import { newDraft, readSelector } from "./policyDraft";
import { previewNodes } from "./previewNodes";

const node = (id: number) => ({ id, health: "live" as const, cpus: 4 });

test("a preview is of live nodes that the selector matches, or of those that were chosen", () => {
  const nodes = [node(1), node(2), node(3)];
  expect(previewNodes(nodes, undefined, [2, 3])).toEqual([2, 3]);
  expect(previewNodes(nodes, undefined, [])).toEqual([]);
  expect(previewNodes(nodes, "1,1", [2])).toEqual([1]);
});

test("the selector is read alone, also while other fields are invalid", () => {
  const draft = newDraft("irq-spread");
  const typed = { ...draft, values: { ...draft.values, "selector.labels": "role=db", rank: "no number" } };
  expect(readSelector(typed)?.labels).toEqual({ role: "db" });
  expect(readSelector({ ...typed, values: { ...typed.values, "selector.labels": "role" } })).toBeNull();
});
