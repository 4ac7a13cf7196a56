import { expect, test } from "vitest";
import { MAX_PLAN_ACTIONS } from "../api/constants";
import type { Change } from "./queries";
import { asFound, undoTargets } from "./undoTargets";

const at = "2026-11-22T10:00:00Z";
const value = (of: string, by: string | null = "ann") => ({ value: of, at: by && at, by, policy_id: null });
const written = [
  { key: "irq/38/affinity", values: [value("0"), value("2"), value("0-7", null)] },
  { key: "irq/41/affinity", values: [value("6"), value("1", null)] },
];
const change = (more: Partial<Change> = {}, keys = ["irq/38/affinity"]) =>
  ({
    node_name: "db-1",
    state: "confirmed",
    ended_by: "user",
    experiment_id: null,
    plan: { actions: keys.map((key) => ({ key, was: "2", becomes: "0", reason: "" })), allow_isolated: false },
    ...more,
  }) as Change;

const labels = (of: Change) => undoTargets(of, written).map(({ id, desired }) => [id, desired.map((one) => one.value)]);

test("a change is undone to the values before it, to any earlier one, to those found, or with all of its node", () => {
  expect(labels(change())).toEqual([
    ["before", ["2"]],
    ["found", ["0-7"]],
    ["value 0", ["0"]],
    ["node", ["0-7", "1"]],
  ]);
});

test("a change that a user rolled back is done again", () => {
  expect(labels(change({ state: "rolled_back" }))[0]).toEqual(["again", ["0"]]);
});

test("of a change of several settings, each returns to its own value", () => {
  expect(labels(change({}, ["irq/38/affinity", "irq/41/affinity"]))).toEqual([
    ["before", ["2", "2"]],
    ["found", ["0-7", "1"]],
  ]);
});

test("of more settings than a plan has room for, those not yet restored come first", () => {
  const one = (number: number, ...values: string[]) => ({
    key: `irq/${number}/affinity`,
    values: values.map((of) => value(of)),
  });
  const restored = Array.from({ length: MAX_PLAN_ACTIONS }, (_, number) => one(number, "0", "2", "0"));
  const found = asFound([...restored, one(300, "2", "0-7")]);
  expect(found).toHaveLength(MAX_PLAN_ACTIONS);
  expect(found[0]).toEqual({ key: "irq/300/affinity", value: "0-7" });
});
