import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { doneSteps, firstNode, isNewFleet } from "./firstSteps";

const node = (id: number, health: Schemas["Health"], simulated = false) =>
  ({ id, health, simulated }) as Schemas["NodeSummary"];

test.each<[string, Schemas["NodeSummary"][], boolean, string[]]>([
  ["nothing", [], false, []],
  ["a node that has never connected", [node(1, "new")], false, []],
  ["a live machine", [node(1, "live")], false, ["live"]],
  ["simulated nodes alone", [node(1, "live", true)], false, ["simulate"]],
  ["a change that was undone", [node(1, "live")], true, ["live", "hottest", "move"]],
  ["two machines, one away", [node(1, "live"), node(2, "away")], false, ["live", "add"]],
])("steps done: %s", (_, nodes, undone, done) => {
  expect([...doneSteps(nodes, undone)]).toEqual(done);
});

test("a fleet of three machines is not new, however many nodes are simulated", () => {
  const two = [node(1, "live"), node(2, "away"), ...Array.from({ length: 50 }, (_, id) => node(id + 10, "live", true))];
  expect(isNewFleet(two)).toBe(true);
  expect(isNewFleet([...two, node(3, "live")])).toBe(false);
});

test("the first steps are made with a live machine", () => {
  expect(firstNode([node(1, "live", true), node(2, "away"), node(3, "live")])?.id).toBe(3);
  expect(firstNode([node(1, "live", true)])).toBeUndefined();
});
