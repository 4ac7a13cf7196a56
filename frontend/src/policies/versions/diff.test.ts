import { expect, test } from "vitest";
import { diffLines, valueText } from "./diff";

test("differences have the form's labels and order", () => {
  const lines = diffLines([
    { path: "guardrails", was: "[]", becomes: '[{"metric":"rtt_p99_us","max":500}]' },
    { path: "selector.labels", was: "{}", becomes: null },
    { path: "selector.labels.rack", was: null, becomes: "r0*" },
    { path: "spec.gap_points", was: "20", becomes: "30" },
    { path: "spec.act_percent", was: "65", becomes: "80" },
    { path: "scope.netdevs", was: '["eth*"]', becomes: null },
    { path: "mode", was: "observe", becomes: "enforce" },
  ]);
  expect(lines.map(({ name, kind }) => [name, kind])).toEqual([
    ["Mode", "changed"],
    ["Load threshold, %", "changed"],
    ["Minimum load difference, percentage points", "changed"],
    ["Node selector: Labels rack", "added"],
    ["Scope: Network devices", "removed"],
    ["Guardrails", "added"],
  ]);
});

test("sizes have the form's unit, and pairs their name", () => {
  const lines = diffLines(
    [
      { path: "spec.max_page_move_bytes", was: "268435456", becomes: "1073741824" },
      { path: "spec.pins.nginx.service", was: null, becomes: "1" },
    ],
    ["numa"],
  );
  expect(lines.map(({ name, was, becomes }) => [name, was, becomes])).toEqual([
    ["Maximum page move, MiB", "256", "1024"],
    ["Static pins nginx.service", null, "1"],
  ]);
});

test.each([
  ["spec.gap_points", "20.0", "20"],
  ["spec.max_load", "0.55", "0.550"],
  ["spec.move_irq", "true", "yes"],
  ["scope.tasks", '["nginx", "postgres*"]', "nginx postgres*"],
  ["scope.tasks", "[]", null],
  ["guardrails", '[{"metric":"rtt_p99_us","max":900.0}]', "RTT p99 ≤ 900\u00a0µs"],
  ["spec.numa", "local", "local"],
  ["spec.exclude", "", null],
])("at %s the value %s is shown as %s", (path, value, shown) => {
  expect(valueText(path, value)).toBe(shown);
});
