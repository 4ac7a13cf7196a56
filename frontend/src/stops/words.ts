import { duration, formatCount } from "../lib/format";
import { labelsText } from "../lib/labels";
import type { Stop, StopEffect } from "./queries";

const policyCount = (count: number): string => (count === 1 ? "1 policy writes" : `${count} policies write`);

export const nodesOf = ({ connected, disconnected }: StopEffect): number => connected.nodes + disconnected.nodes;
export const settingsOf = ({ connected, disconnected }: StopEffect): number =>
  connected.settings + disconnected.settings;

/** `on all 1,024 nodes`, `on 12 nodes of rack=r01`. */
export function where({ labels, effect }: Pick<Stop, "labels" | "effect">): string {
  const scope = labelsText(labels);
  const nodes = formatCount(nodesOf(effect), "node");
  return scope === "" ? `on all ${nodes}` : `on ${nodes} of ${scope}`;
}

/** What the settings and the policies do while the stop is in force. */
export function consequence({ restore, effect, stuck }: Pick<Stop, "restore" | "effect" | "stuck">): string {
  const settings = settingsOf(effect);
  const values = restore
    ? `settings are as found${stuck > 0 ? `, ${stuck.toLocaleString("en")} could not be restored` : ""}`
    : `${formatCount(settings, "setting")} ${settings === 1 ? "keeps its value" : "keep their values"}`;
  return `${values}, ${policyCount(effect.policies.length)} nothing`;
}

/** How many agents obey, within what time, and which do not yet. */
export function progress({ obeyed, within_s, unanswered, waiting }: Stop): string {
  const parts = [`reached ${formatCount(obeyed, "node")}`];
  if (within_s !== null) parts[0] += ` within ${within_s < 10 ? `${within_s.toFixed(1)} s` : duration(within_s)}`;
  if (unanswered > 0) parts.push(`${formatCount(unanswered, "connected node")} not answered yet`);
  if (waiting > 0)
    parts.push(`${formatCount(waiting, "disconnected node")} ${waiting === 1 ? "stops" : "stop"} on reconnecting`);
  return parts.join("; ");
}

/** What else waits or ends: rollouts and experiments; null if nothing does. */
export function alsoAffected({ rollouts, experiments }: StopEffect): string | null {
  const parts: string[] = [];
  if (rollouts.length > 0)
    parts.push(
      `${formatCount(rollouts.length, "rollout")} (${rollouts.join(", ")}) ${rollouts.length === 1 ? "is" : "are"} held`,
    );
  if (experiments > 0)
    parts.push(`${formatCount(experiments, "experiment")} ${experiments === 1 ? "is" : "are"} cancelled`);
  return parts.length === 0 ? null : `${parts.join("; ")}.`;
}

/** What happens when a stop is lifted. */
export function afterLift(effect: StopEffect): string {
  if (effect.policies.length === 0) return "No policy is enforced on its nodes, so nothing is written.";
  const names = effect.policies.map(({ name, nodes }) => `${name} (${formatCount(nodes, "node")})`).join(", ");
  return `${policyCount(effect.policies.length)} again: ${names}.`;
}
