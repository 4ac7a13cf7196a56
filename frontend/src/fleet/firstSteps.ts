import type { Schemas } from "../api/client";

type NodeSummary = Schemas["NodeSummary"];

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

const machines = (nodes: NodeSummary[]) => nodes.filter(({ simulated, health }) => !simulated && health !== "new");

/** The steps that the fleet's present state shows to be done. undone: some change was rolled back. */
export function doneSteps(nodes: NodeSummary[], undone: boolean): Set<StepId> {
  const real = machines(nodes);
  const facts: Record<StepId, boolean> = {
    live: real.some(({ health }) => health === "live"),
    hottest: undone, // a move starts from the node page
    move: undone,
    add: real.length > 1,
    simulate: nodes.some(({ simulated }) => simulated),
  };
  return new Set(STEPS.map(({ id }) => id).filter((id) => facts[id]));
}

/** Whether a fleet is so new that its first steps are shown. */
export const isNewFleet = (nodes: NodeSummary[]): boolean => machines(nodes).length < MANY_MACHINES;

/** The node with which the first steps are made: a live machine, else one that has connected. */
export const firstNode = (nodes: NodeSummary[]): NodeSummary | undefined =>
  machines(nodes).find(({ health }) => health === "live") ?? machines(nodes)[0];
