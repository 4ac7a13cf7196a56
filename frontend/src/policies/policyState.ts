import { ROUND_PERIOD_S } from "../api/constants";
import { formatCount } from "../lib/format";
import { isRolling } from "./queries";
import type { Policy, Rollout } from "./types";

const ROLLOUT: Record<Rollout["state"], string> = {
  canary: "rolling out",
  batches: "rolling out",
  done: "rolled out",
  stopped: "rollout stopped",
  rolled_back: "rolled back",
};

/** On how many nodes each version is in force: `v4 on 771 nodes`, `v5 on 41, rolling out`. */
export function versionsInForce({ in_force, rollout }: Pick<Policy, "in_force" | "rollout">): string[] {
  const parts = in_force.map(({ version, nodes }, index) => {
    const on = `v${version} on ${index === 0 ? formatCount(nodes, "node") : nodes.toLocaleString("en")}`;
    return rollout !== null && version === rollout.to_version ? `${on}, ${ROLLOUT[rollout.state]}` : on;
  });
  if (rollout !== null && in_force.every(({ version }) => version !== rollout.to_version))
    parts.push(`v${rollout.to_version} on no node yet, ${ROLLOUT[rollout.state]}`);
  return parts;
}

const ENABLED: Record<Policy["body"]["mode"], string> = {
  observe: "observing",
  recommend: "recommending",
  enforce: "in force",
};

/** The state of a policy: `in force`, `observing`, `disabled`, `v4 on 771 nodes, v5 on 41, rolling out`. */
export function policyState(policy: Pick<Policy, "enabled" | "rollout" | "in_force" | "body">): string {
  if (policy.rollout === null) return policy.enabled ? ENABLED[policy.body.mode] : "disabled";
  return versionsInForce(policy).join(", ");
}

/** The color of a policy's state: green only where it writes. */
export function policyTone({
  enabled,
  rollout,
  body,
}: Pick<Policy, "enabled" | "rollout" | "body">): "ok" | "warn" | "" {
  if (isRolling(rollout)) return "warn";
  return enabled && body.mode === "enforce" ? "ok" : "";
}

/** How much of their nodes' time enforced policies are held out: `Holdouts: 2 to 5 % of node time`. */
export function holdoutsText(policies: Pick<Policy, "enabled" | "rollout" | "body">[]): string {
  const shares = policies
    .filter(({ enabled, rollout, body }) => (enabled || rollout !== null) && body.mode === "enforce")
    .map(({ body }) => body.proof.holdout_percent);
  const [least, most] = [Math.min(...shares), Math.max(...shares)];
  if (shares.length === 0 || most === 0) return "Holdouts: none";
  return `Holdouts: ${least === most ? "" : `${least} to `}${most} % of node time`;
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
  return `${off}; every setting that it changed there is restored, later where a change window is closed or enforcement is stopped.${end}`;
}

/** Whether nodes that stop enforcing a policy move memory back, unless it is to stay. */
export const movesMemory = ({ enabled, body, rollout }: Pick<Policy, "enabled" | "body" | "rollout">): boolean =>
  enabled && body.spec.type === "numa" && (body.mode === "enforce" || rollout !== null);
