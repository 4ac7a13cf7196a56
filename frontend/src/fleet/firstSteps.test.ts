import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { doneSteps, factsOf, isNewFleet } from "./firstSteps";

/** The facts of a fleet with machines of these healths. */
const facts = (healths: Schemas["Health"][], simulated = 0) => {
  const health = Object.fromEntries(healths.map((one) => [one, healths.filter((other) => other === one).length]));
  return factsOf({ totals: { nodes: healths.length, health }, simulated } as Schemas["FleetAnswer"]);
};

test.each<[string, Schemas["Health"][], number, boolean, string[]]>([
  ["nothing", [], 0, false, []],
  ["a node that has never connected", ["new"], 0, false, []],
  ["a live machine", ["live"], 0, false, ["live"]],
  ["simulated nodes alone", [], 1, false, ["simulate"]],
  ["a change that was undone", ["live"], 0, true, ["live", "hottest", "move"]],
  ["two machines, one away", ["live", "away"], 0, false, ["live", "add"]],
])("steps done: %s", (_, healths, simulated, undone, done) => {
  expect([...doneSteps(facts(healths, simulated), undone)]).toEqual(done);
});

test("a fleet of three machines is not new, however many nodes are simulated", () => {
  expect(isNewFleet(facts(["live", "away"], 50))).toBe(true);
  expect(isNewFleet(facts(["live", "away", "live"]))).toBe(false);
});
