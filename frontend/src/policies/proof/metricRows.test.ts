import { expect, test } from "vitest";
import type { PolicyBody } from "../types";
import { metricRows } from "./metricRows";
import type { MetricProof } from "./types";

const metric = (name: string, primary: boolean): MetricProof => ({
  ...{ metric: name, label: name, primary, alpha: 0.05, finding: "none_yet", finding_since: null, effect: null },
  ...{ detectable: null, expected: null, sentence: "No effect yet.", course: [] },
});
const metrics = [metric("cpu_s_per_gbit", true), metric("rtt_p99_us", false), metric("retransmits", false)];
const body = (roll_back: boolean) =>
  ({
    guardrails: [
      { metric: "rtt_p99_us", max: 5000 },
      { metric: "busiest_cpu_percent", max: 92.5 },
    ],
    proof: { roll_back },
  }) as PolicyBody;

test("each guardrail has its limits beside its effect, also one that is not measured", () => {
  const rows = metricRows({ metrics }, body(true)).map(({ name, tag, limit }) => [name, tag, limit]);
  expect(rows).toEqual([
    ["cpu_s_per_gbit", "primary", ""],
    ["rtt_p99_us", "guardrail", "≤ 5,000\u00a0µs; no worse, else rolled back"],
    ["retransmits", "guardrail", "no worse, else rolled back"],
    ["Busiest CPU", "guardrail", "≤ 92.5\u00a0%"],
  ]);
  expect(metricRows({ metrics }, body(false))[2]?.limit).toBe("no worse, else reported");
});
