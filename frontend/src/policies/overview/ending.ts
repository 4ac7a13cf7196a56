import type { OnNode, Overview, Policy } from "../types";

/** What the end of a policy does: nodes by whether their agents learn of it now, and settings. */
export type Ending = { now: number; later: number; settings: number; foreign: number };

export function endingOf({ nodes }: Pick<Overview, "nodes">): Ending {
  const concerned = nodes.filter(({ enforced, settings, foreign }) => enforced || settings + foreign > 0);
  const sum = (of: (node: OnNode) => number) => concerned.reduce((total, node) => total + of(node), 0);
  const now = concerned.filter(({ connected }) => connected).length;
  return {
    now,
    later: concerned.length - now,
    settings: sum(({ settings }) => settings),
    foreign: sum(({ foreign }) => foreign),
  };
}

/**
 * The nodes on which a policy that has ended still has settings to restore. Until an overview from after its end
 * arrives, the last one shows it enforced: nothing is restored there yet.
 */
export const unrestored = ({ nodes }: Pick<Overview, "nodes">): OnNode[] =>
  nodes.filter(({ enforced, settings }) => enforced || settings > 0);

/** The nodes that have evaluated a policy since it was enabled. before: times of the decisions until then. */
export const evaluated = ({ nodes }: Pick<Overview, "nodes">, before: ReadonlyMap<number, string | null>): OnNode[] =>
  nodes.filter(({ node_id, version, at }) => version !== null && at !== null && at !== (before.get(node_id) ?? null));

/** Whether enabling or disabling writes settings, so that a person confirms it. */
export const writes = ({ body, rollout }: Pick<Policy, "body" | "rollout">): boolean =>
  body.mode === "enforce" || rollout !== null;
