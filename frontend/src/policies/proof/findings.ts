import { effectText, effectWithInterval } from "../../experiments/format";
import { duration } from "../../lib/format";
import { dateTime } from "../../lib/time";
import { isRolling } from "../queries";
import type { Policy, PolicyBody } from "../types";
import type { Finding, ProvenEffect, VersionProof } from "./types";

/** Each finding in words, and the class of its color: better and worse have one, anything else is plain. */
export const FINDINGS: Record<Finding, { words: string; tone: string }> = {
  no_evidence: { words: "no evidence yet", tone: "muted" },
  none_yet: { words: "no effect detected yet", tone: "muted" },
  improves: { words: "better", tone: "ok" },
  worsens: { words: "worse", tone: "bad" },
  higher: { words: "higher", tone: "" },
  lower: { words: "lower", tone: "" },
};

/** Whether an effect has been detected. */
export const isDetected = (finding: Finding): boolean => finding !== "no_evidence" && finding !== "none_yet";

export const NO_INTERVAL = "There are too few blocks for an interval.";

/** An effect with its interval: `−3.1 % (−4.0 to −2.2 %)`; alone while there is no interval. */
export function provenText({ estimate, low, high }: ProvenEffect): string {
  if (low === null || high === null) return effectText(estimate);
  return effectWithInterval({ value: estimate, low, high });
}

export type Standing = "in force" | "rolling out" | "rolled back" | "retired";

/** What has become of a version of a policy. */
export function standingOf(
  { version, rolled_back_at }: Pick<VersionProof, "version" | "rolled_back_at">,
  policy: Pick<Policy, "version" | "enabled" | "rollout">,
): Standing {
  if (isRolling(policy.rollout) && policy.rollout?.to_version === version) return "rolling out";
  if (policy.enabled && policy.version === version) return "in force";
  return rolled_back_at === null ? "retired" : "rolled back";
}

/** Why a rolled back version was: the metric that it worsened. */
export function reasonOf({ metrics }: Pick<VersionProof, "metrics">): string | null {
  return metrics.find(({ finding }) => finding === "worsens")?.sentence ?? null;
}

/** Blocks of an episode, and the largest share of a period that is holdout. */
const BLOCKS = 2;
const MAX_SHARE = 0.2;

/** How often each node has an episode: `Each node has an episode of 2 × 10 min in every 3 h 20 min.` */
export function rhythm({ block_s, holdout_percent }: Pick<PolicyBody["proof"], "block_s" | "holdout_percent">): string {
  return `Each node has an episode of ${BLOCKS} × ${duration(block_s)} in every ${duration(periodOf(block_s, holdout_percent))}.`;
}

const periodOf = (blockS: number, percent: number): number => blockS / Math.min(percent / 100, MAX_SHARE);

/** When the first evidence about a version without any is expected; null where there is some, or will be none. */
export function firstEvidence(
  proof: Pick<VersionProof, "episodes" | "running" | "waiting" | "started_at">,
  { block_s, holdout_percent }: Pick<PolicyBody["proof"], "block_s" | "holdout_percent">,
  nowMs: number,
): string | null {
  if (proof.episodes > 0 || holdout_percent === 0) return null;
  if (proof.waiting > 0) return "The samples of the first episode are being completed.";
  if (proof.running > 0) return `The first episode ends within ${duration(BLOCKS * block_s)}.`;
  // A node has been in force for a block before its first episode, for which this period may be too short.
  const latestMs = Date.parse(proof.started_at) + 1000 * (block_s + 2 * periodOf(block_s, holdout_percent));
  if (latestMs < nowMs) return "No episode has counted so far.";
  return `The first episode ends by ${dateTime(latestMs)} at the latest.`;
}
