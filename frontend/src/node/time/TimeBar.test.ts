import { expect, test } from "vitest";
import { absoluteLink } from "./TimeBar";

test("a link has the shown range and the selection, and no live span", () => {
  const range = { from: 1000.4, to: 61000.6 };
  expect(absoluteLink("http://host/nodes/1?span=60&sel=irq%3A41", range)).toBe(
    "http://host/nodes/1?sel=irq%3A41&from=1000&to=61001",
  );
});

test("a link of a past range stays the same", () => {
  const href = "http://host/nodes/1?from=1000&to=61000";
  expect(absoluteLink(href, { from: 1000, to: 61000 })).toBe(href);
});
