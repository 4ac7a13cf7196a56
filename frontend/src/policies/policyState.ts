import { ROUND_PERIOD_S } from "../api/constants";
import { formatCount } from "../lib/format";
import type { Policy, Rollout } from "./types";

const ROLLOUT: Record<Rollout["state"], string> = {
  canary: "canary",
  batches: "rolling out",
  done: "rolled out",
  stopped: "rollout stopped",
  rolled_back: "rollout rolled back",
};

/** The state of a policy: `in force`, `disabled`, `rolling out v4: 12 of 40 nodes passed`. */
export function policyState({ enabled, rollout }: Pick<Policy, "enabled" | "rollout">): string {
  if (rollout === null) return enabled ? "in force" : "disabled";
  const all = rollout.stages.flat().length;
  return `${ROLLOUT[rollout.state]} v${rollout.to_version}: ${rollout.done_nodes.length} of ${formatCount(all, "node")} passed`;
}

/** The effect of enabling a policy. */
export function describeEnabling({ version, nodes, body }: Pick<Policy, "version" | "nodes" | "body">): string {
  const on = `Enabling puts version ${version} in force on ${formatCount(nodes, "node")} at once: `;
  if (body.mode === "observe") return `${on}their pages show its result, and nothing is changed.`;
  if (body.mode === "recommend") return `${on}it recommends changes on their pages, and a person applies them.`;
  return `${on}each applies up to ${formatCount(body.damping.moves_per_step, "change")} every ${ROUND_PERIOD_S} s automatically. A rollout starts with a few nodes instead.`;
}

/** The effect of disabling a policy. */
export function describeDisabling({ nodes, body, rollout }: Pick<Policy, "nodes" | "body" | "rollout">): string {
  const end = rollout === null ? "" : " Its rollout stops.";
  const off = `Disabling stops it on ${formatCount(nodes, "node")}`;
  if (body.mode !== "enforce") return `${off}; no setting is changed there.${end}`;
  return `${off}; every setting that it changed there is restored.${end}`;
}

/** Whether nodes that stop enforcing a policy move memory back, unless it is to stay. */
export const movesMemory = ({ enabled, body, rollout }: Pick<Policy, "enabled" | "body" | "rollout">): boolean =>
  enabled && body.spec.type === "numa" && (body.mode === "enforce" || rollout !== null);

/** Names of nodes in one line, a few of many: `db-1, db-2 and 40 more`. */
export function listNames(names: string[], most = 6): string {
  const rest = names.length - most;
  return rest > 0 ? `${names.slice(0, most).join(", ")} and ${rest} more` : names.join(", ");
}
