import { expect, test } from "vitest";
import { newDraft, readSelector } from "./policyDraft";
import { previewNodes } from "./previewNodes";

test("a preview is of live nodes that the selector matches, or of those that were chosen", () => {
  expect(previewNodes(undefined, [2, 3])).toEqual([2, 3]);
  expect(previewNodes(undefined, undefined)).toEqual([]);
  expect(previewNodes("1,1", [2])).toEqual([1]);
});

test("the selector is read alone, also while other fields are invalid", () => {
  const draft = newDraft("irq-spread");
  const typed = { ...draft, values: { ...draft.values, "selector.labels": "role=db", rank: "no number" } };
  expect(readSelector(typed)?.labels).toEqual({ role: "db" });
  expect(readSelector({ ...typed, values: { ...typed.values, "selector.labels": "role" } })).toBeNull();
});
