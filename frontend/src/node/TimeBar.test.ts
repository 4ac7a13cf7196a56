import { expect, test } from "vitest";
import { frozen } from "./TimeBar";

test("a link holds the time in sight and what is selected, and leaves the live span out", () => {
  const range = { from: 1000.4, to: 61000.6 };
  expect(frozen("http://host/nodes/1?span=60&sel=irq%3A41", range)).toBe(
    "http://host/nodes/1?sel=irq%3A41&from=1000&to=61001",
  );
});

test("a link of a past range stays the same", () => {
  const href = "http://host/nodes/1?from=1000&to=61000";
  expect(frozen(href, { from: 1000, to: 61000 })).toBe(href);
});
