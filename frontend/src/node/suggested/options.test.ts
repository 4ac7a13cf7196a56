import { expect, test } from "vitest";
import {
  addedEffect,
  type HotSpot,
  loadChanges,
  type Option,
  pinnedSpot,
  recommendedText,
  settingsText,
  shownSpot,
  targetsOf,
} from "./options";

const move = (irq: number, target: string): Option["moves"][number] => ({
  ...{ key: `irq/${irq}/affinity`, value: target, subject: `IRQ ${irq}`, origin: 47, target, reason: "" },
});
const option = (over: Partial<Option> = {}): Option => ({
  policy: "irq-spread",
  label: "IRQ 31 → CPU 12",
  near: "same cache",
  moves: [move(31, "12")],
  forecasts: [
    { cpu: 47, before: 92, least: -51, most: -25.5 },
    { cpu: 12, before: 7, least: 25.5, most: 51 },
  ],
  crossing: null,
  ...over,
});
const SECOND = option({
  label: "IRQ 32 → CPU 8, 33 → 9",
  moves: [move(32, "8"), move(33, "9")],
  forecasts: [
    { cpu: 47, before: 92, least: -30, most: -15 },
    { cpu: 8, before: 5, least: 10, most: 20 },
    { cpu: 9, before: 3, least: 5, most: 10 },
  ],
});
const PROCESS = option({
  policy: "network-process",
  label: "envoy (812) → CPU 8",
  moves: [{ ...move(0, "8"), key: "task/812/affinity" }],
  forecasts: [{ cpu: 47, before: 92, least: 0, most: 0 }],
  crossing: { before: 100, after: 4 },
});
const spot = (cpu: number, options: Option[]): HotSpot => ({
  ...{ cpu, busy: 90, softirq: 80, cause: "", sentence: "", options },
});

test("the loads of options that are applied together add up", () => {
  expect(loadChanges(47, [option()])).toEqual([
    { label: "CPU 47", before: 92, least: 41, most: 66.5 },
    { label: "CPU 12", before: 7, least: 32.5, most: 58 },
  ]);
  expect(loadChanges(47, [option(), SECOND])).toEqual([
    { label: "CPU 47", before: 92, least: 11, most: 51.5 },
    { label: "busiest target", before: 7, least: 32.5, most: 58 },
  ]);
});

test("what another option adds is the load of the hot CPU, or which packets still cross a cache", () => {
  expect(addedEffect(47, [option()], SECOND)).toBe("CPU 47 → 11 to 52\u00a0%");
  expect(addedEffect(47, [option()], PROCESS)).toBe("packets that cross a cache 100 → 4 %");
});

test("the selected hot CPU is shown, else the first that a move helps", () => {
  const hot = [spot(1, []), spot(2, [option()]), spot(3, [SECOND])];
  expect(shownSpot(hot, undefined)?.cpu).toBe(2);
  expect(shownSpot(hot, 3)?.cpu).toBe(3);
  expect(shownSpot(hot, undefined, "cpu:1")?.cpu).toBe(1);
  expect(shownSpot(hot, undefined, "irq:33")?.cpu).toBe(3);
  expect(shownSpot(hot, undefined, "cpu:9")?.cpu).toBe(2);
  expect(shownSpot([spot(1, [])], undefined)?.cpu).toBe(1);
});

test("the settings of all chosen options are passed on", () => {
  expect(settingsText([option(), SECOND])).toBe("irq/31/affinity=12 irq/32/affinity=8 irq/33/affinity=9");
});

test("the targets of a hot CPU are those to which the chosen options move work", () => {
  expect(targetsOf(47, [SECOND])).toEqual([8, 9]);
  expect(targetsOf(47, [option(), SECOND])).toEqual([12, 8, 9]);
  expect(targetsOf(undefined, [])).toEqual([]);
});

test("an open preview stays at its plan while the suggestion changes, until it is closed or another is opened", () => {
  const first = spot(47, [option()]);
  const second = spot(47, [SECOND]);
  expect(pinnedSpot(undefined, undefined, first)).toBeUndefined();
  expect(pinnedSpot(undefined, 47, first)).toBe(first);
  expect(pinnedSpot(first, 47, second)).toBe(first);
  expect(pinnedSpot(first, 47, undefined)).toBe(first);
  expect(pinnedSpot(first, undefined, second)).toBeUndefined();
  const other = spot(3, [SECOND]);
  expect(pinnedSpot(first, 3, other)).toBe(other);
});

test("a suggestion says whether a policy recommends the same, or what else", () => {
  const recommends = (...actions: [number, string][]) => ({
    policy_name: "spread",
    evaluation: {
      actions: actions.map(([irq, becomes]) => ({ key: `irq/${irq}/affinity`, was: "47", becomes, reason: "" })),
    },
  });
  expect(recommendedText(option(), [])).toBeNull();
  expect(recommendedText(PROCESS, [recommends([31, "12"])])).toBeNull();
  expect(recommendedText(option(), [recommends([31, "12"], [32, "8"])])).toBe("“spread” recommends the same.");
  expect(recommendedText(option(), [recommends([26, "4"])])).toBe(
    "“spread” recommends IRQ 26 CPU 47 → 4: it weighs the whole node, by its own limits.",
  );
});
