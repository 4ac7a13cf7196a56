import type { Schemas } from "../api/client";

/** The steps of a new fleet in their order; each needs a role. */
export const STEPS = [
  { id: "live", title: "A node is live", needs: "viewer" },
  { id: "hottest", title: "Look at the hottest CPU of a node", needs: "viewer" },
  { id: "move", title: "Try a move and let it undo itself", needs: "operator" },
  { id: "add", title: "Add a node", needs: "admin" },
  { id: "simulate", title: "Simulate a fleet", needs: "admin" },
] as const satisfies { id: string; title: string; needs: Schemas["Role"] }[];

export type Step = (typeof STEPS)[number];
export type StepId = Step["id"];

/** A fleet of this many machines shows no first steps. */
const MANY_MACHINES = 3;

/** What the first steps need of a fleet: the machines that have connected, those that are live, simulated nodes. */
export type FleetFacts = { machines: number; live: number; simulated: number };

/** The facts in the answers about the machines and about the whole fleet. */
export function factsOf({ totals, simulated }: Pick<Schemas["FleetAnswer"], "totals" | "simulated">): FleetFacts {
  return { machines: totals.nodes - (totals.health.new ?? 0), live: totals.health.live ?? 0, simulated };
}

/** The steps that the fleet's present state shows to be done. undone: some change was rolled back. */
export function doneSteps({ machines, live, simulated }: FleetFacts, undone: boolean): Set<StepId> {
  const facts: Record<StepId, boolean> = {
    live: live > 0,
    hottest: undone, // a move starts from the node page
    move: undone,
    add: machines > 1,
    simulate: simulated > 0,
  };
  return new Set(STEPS.map(({ id }) => id).filter((id) => facts[id]));
}

/** Whether a fleet is so new that its first steps are shown. */
export const isNewFleet = ({ machines }: FleetFacts): boolean => machines < MANY_MACHINES;
