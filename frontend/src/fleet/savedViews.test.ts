import { expect, test } from "vitest";
import { searchOf, viewText } from "./savedViews";

test("a view has how the page shows nodes and not when, and is read back", () => {
  const shown = { q: "label:role=db softirq > 60", view: "table", columns: "rx,rtt", compare: "1d" } as const;
  const text = viewText({ ...shown, from: 1, to: 60_001, at: 2 });
  expect(text).toBe("columns=rx%2Crtt&compare=1d&q=label%3Arole%3Ddb+softirq+%3E+60&view=table");
  expect(searchOf(text, { from: 5, to: 70_000 })).toMatchObject({ ...shown, from: 5, to: 70_000 });
});

test("what a page does not know of a view is left out", () => {
  expect(viewText(searchOf("view=cards&color=rtt&x=1", {}))).toBe("color=rtt");
});
