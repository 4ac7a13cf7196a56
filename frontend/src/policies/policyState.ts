import { count } from "../lib/format";
import type { Policy, Rollout } from "./types";

/** How often a node decides (coresteer_core.policies.base.STEP_S). */
const ROUND = "every 5 s";

const ROLLOUT: Record<Rollout["state"], string> = {
  canary: "canary",
  batches: "rolling out",
  done: "rolled out",
  stopped: "rollout stopped",
  rolled_back: "rollout rolled back",
};

/** Where a policy stands, for a list: `in force`, `off`, `rolling out v4: 12 of 40 nodes passed`. */
export function policyState({ enabled, rollout }: Pick<Policy, "enabled" | "rollout">): string {
  if (rollout === null) return enabled ? "in force" : "off";
  const all = rollout.stages.flat().length;
  return `${ROLLOUT[rollout.state]} v${rollout.to_version}: ${rollout.done_nodes.length} of ${count(all, "node")} passed`;
}

/** What turning a policy on will do. */
export function describeEnabling({ version, nodes, body }: Pick<Policy, "version" | "nodes" | "body">): string {
  const on = `Enabling puts version ${version} in force on ${count(nodes, "node")} at once: `;
  if (body.mode === "observe") return `${on}their pages show what it thinks, and nothing is changed.`;
  if (body.mode === "recommend") return `${on}it proposes moves on their pages, and a person applies them.`;
  return `${on}they write up to ${count(body.damping.moves_per_step, "setting")} ${ROUND} by themselves. A rollout begins with a few nodes instead.`;
}

/** What turning a policy off will do. */
export function describeDisabling({ nodes, body, rollout }: Pick<Policy, "nodes" | "body" | "rollout">): string {
  const end = rollout === null ? "" : " Its rollout ends.";
  const off = `Disabling ends it on ${count(nodes, "node")}`;
  if (body.mode !== "enforce") return `${off}; nothing is changed there.${end}`;
  return `${off}; every setting that it moved there goes back to what it was before.${end}`;
}

/** Names of nodes in one line, a few of many: `db-1, db-2 and 40 more`. */
export function listNames(names: string[], most = 6): string {
  const rest = names.length - most;
  return rest > 0 ? `${names.slice(0, most).join(", ")} and ${rest} more` : names.join(", ");
}
