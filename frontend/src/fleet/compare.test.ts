import { expect, test } from "vitest";
import { difference } from "./compare";

const NBSP = "\u00a0";

test.each([
  ["rx_bytes_per_s", 150e6, 100e6, "+400 Mbit/s, +50 %", false],
  ["rtt_p99_us", 250, 100, "+150 µs, +150 %", true],
  ["rtt_p99_us", 104, 100, "+4.00 µs, +4 %", false],
  ["rtt_p99_us", 50, 100, "−50.0 µs, −50 %", false],
  ["busiest_cpu_percent", 62, 60, "+2 points, +3 %", false],
  ["busiest_cpu_percent", 61, 60, "+1 point, +2 %", false],
  ["busiest_cpu_percent", 92, 60, "+32 points, +53 %", true],
  ["softnet_dropped_per_s", 3, 0, "+3.00 /s", true],
  ["softnet_dropped_per_s", 0, 0, "±0", false],
  ["softirq_cpu_percent", 10.3, 10.1, "±0", false],
] as const)("%s of %s after %s: %s", (metric, value, before, text, isWorse) => {
  const found = difference(metric, value, before);
  expect({ ...found, text: found?.text.replaceAll(NBSP, " ") }).toEqual({ text, isWorse });
});

test("nothing is compared with what is unknown", () => {
  expect(difference("rtt_p99_us", 4, Number.NaN)).toBe(null);
  expect(difference("rtt_p99_us", Number.NaN, 4)).toBe(null);
});
