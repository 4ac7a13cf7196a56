import { expect, test } from "vitest";
import { fileName } from "./ExportMenu";

const AT = Date.UTC(2026, 10, 22, 8, 12, 40, 300);

test("an exported file's name states node, metric and range in UTC", () => {
  const range = { from: AT, to: AT + 300_000 };
  expect(fileName("web-1 RTT", range, "csv")).toBe("web-1-rtt-2026-11-22T081240Z-2026-11-22T081740Z.csv");
});

test("what is of one moment has one time, and what no file can be named becomes a dash", () =>
  expect(fileName("web/1 CPUs 4 %", { from: AT, to: AT }, "svg")).toBe("web-1-cpus-4--2026-11-22T081240Z.svg"));
