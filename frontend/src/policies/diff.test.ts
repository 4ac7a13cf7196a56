import { expect, test } from "vitest";
import { diffLines } from "./diff";

test("differences are told in the form's words and order, with what became of each", () => {
  const lines = diffLines([
    { path: "guardrails", was: "[]", becomes: '[{"metric":"rtt_p99_us","max":500}]' },
    { path: "selector.labels.rack", was: null, becomes: "r0*" },
    { path: "spec.gap_points", was: "20", becomes: "30" },
    { path: "spec.act_percent", was: "65", becomes: "80" },
    { path: "scope.netdevs", was: '["eth*"]', becomes: null },
    { path: "mode", was: "observe", becomes: "enforce" },
  ]);
  expect(lines.map(({ name, kind }) => [name, kind])).toEqual([
    ["Mode", "changed"],
    ["Act from a load of, %", "changed"],
    ["Least gap, percentage points", "changed"],
    ["For: Labels", "added"],
    ["Only: Network devices", "removed"],
    ["Guardrails (RTT p99, Dropped packets, Busiest CPU)", "changed"],
  ]);
});
