import type { Schemas } from "../api/client";
import { statusWords, undoneText } from "../changes/state";
import { titlePrefix } from "../changes/words";
import { isCpuListSetting, settingName, settingValue } from "../lib/settingKeys";
import type { Row } from "./rows";

type Entry = Pick<Schemas["AuditEntry"], "action" | "target" | "result" | "detail">;
type Change = Schemas["Change"];
type Action = { key: string; becomes: string };

const WORDS: Record<Schemas["AuditEntry"]["action"], string> = {
  "alert-receiver.change": "changed receiver of alerts",
  "alert-receiver.create": "created receiver of alerts",
  "alert-receiver.delete": "deleted receiver of alerts",
  "alert-receiver.test": "tested receiver of alerts",
  "alert-rule.change": "changed rule of alerts",
  "alert-rule.create": "created rule of alerts",
  "alert-rule.delete": "deleted rule of alerts",
  "alert-silence.create": "silenced alerts",
  "alert-silence.end": "ended silence of alerts",
  "application-metric.create": "declared application metric",
  "application-metric.delete": "deleted application metric",
  "approval.approve": "approved a request for",
  "approval.close": "closed a request for",
  "approval.reject": "rejected a request for",
  "approval.request": "requested approval for",
  "approval.set_threshold": "set the number of nodes for",
  "approval.withdraw": "withdrew a request for",
  "audit.anonymize": "removed from the audit log the name of",
  "change.apply": "apply",
  "change.applying": "applying",
  "change.unconfirmed": "applied, not confirmed yet",
  "change.confirm": "confirm",
  "change.confirmed": "confirmed",
  "change.extend": "more time to confirm",
  "change.failed": "failed",
  "change.roll_back": "roll back",
  "change.rolled_back": "rolled back",
  "enforcement.stop": "stopped",
  "enforcement.restore": "restored every setting during the stop of",
  "change-window.create": "created change window",
  "change-window.delete": "deleted change window",
  "enforcement.lift": "lifted the stop of",
  "enrolment-token.create": "created",
  "enrolment-token.revoke": "revoked",
  "experiment.cancel": "canceled",
  "experiment.end": "end of",
  "experiment.start": "started",
  "fleet-view.create": "saved the fleet view",
  "fleet-view.delete": "deleted the fleet view",
  login: "sign-in",
  logout: "sign-out",
  "managed-set.replace": "changed which resources belong to the",
  "node.delete": "deleted node",
  "node.enrol": "enrolled",
  "node.re-enrol": "enrolled again",
  "node.readmit": "created a token to readmit node",
  "node.revoke_key": "revoked the key of node",
  "node.rotate_key": "rotated the key of node",
  "node.set_labels": "changed the labels of node",
  "policy.create": "created",
  "policy.create_version": "changed",
  "policy.delete": "deleted",
  "policy.disable": "disabled",
  "policy.enable": "enabled",
  "policy.find_effect": "measured the effect of",
  "policy.roll_back": "rolled back",
  "policy.set_pace": "set the pace of rollouts of",
  "proof.pause": "paused",
  "proof.resume": "resumed",
  "quota.exceed": "data above the quota",
  "report.share": "shared the report of",
  "report.unshare": "deleted the links to the report of",
  "retention.drop": "deleted the oldest data,",
  "rollout.advance": "rolled out to the next stage:",
  "rollout.finish": "rolled out on every node:",
  "rollout.roll_back": "rolled back the new version of",
  "rollout.start": "started the rollout of",
  "rollout.stop": "stopped the rollout of",
  "session.end": "ended a session of",
  "session.end_by_issuer": "ended a session of",
  setup: "set up Coresteer and created",
  "simulated-nodes.remove": "removed",
  "simulated-nodes.start": "started",
  "simulation-trace.delete": "deleted",
  "simulation-trace.store": "stored",
  "simulation.cancel": "canceled",
  "simulation.start": "started",
  "token.create": "created API",
  "token.delete": "deleted API",
  "user.change_password": "changed the password of",
  "user.create": "created",
  "user.delete": "deleted",
  "user.update": "changed",
  "user.update_by_issuer": "changed the role of",
};
const UUID = /\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b/;
const MAX_ACTIONS = 2;

/** `IRQ 38 → CPU 0`; of several settings the first two. */
export function actionsText(actions: Action[]): string {
  const shown = actions.slice(0, MAX_ACTIONS).map(({ key, becomes }) => {
    const value = settingValue(key, becomes);
    const cpus = /^\d+$/.test(becomes) ? "CPU" : "CPUs";
    return `${settingName(key)} → ${isCpuListSetting(key) && /^\d/.test(value) ? `${cpus} ${value}` : value}`;
  });
  const more = actions.length - shown.length;
  return `${shown.join(", ")}${more > 0 ? ` and ${more} more` : ""}`;
}

/** An entry in plain words, without ids: `created` of `policy web`. */
export function entryWords({ action, target, result, detail }: Entry): { said: string; of: string } {
  const verb = WORDS[action] ?? action; // an action of a later version
  const said =
    result === "requested" ? `${verb} requested` : result === "ok" || result === verb ? verb : `${verb} ${result}`;
  if (!action.startsWith("change.")) return { said, of: target.replace(UUID, "").trim() };
  const { sentence } = detail;
  return { said, of: typeof sentence === "string" ? sentence : "" };
}

type RowWords = { said: string; of: string; tone: string };

/**
 * A row in plain words: `confirmed` of `undo: IRQ 38 → CPU 0`. Of changes it has their status, unless the newest request
 * was refused or failed. An undone change has the status at the row's time, and then who undid it and when.
 */
export function rowWords({ entries: [newest], changes }: Row<Entry, Change>): RowWords {
  const { said, of } = entryWords(newest);
  const tone = newest.result === "ok" ? "" : newest.result === "requested" ? "change" : "bad";
  const [change] = changes;
  if (change === undefined) return { said, of, tone };
  if (changes.length > 1) {
    const said = new Set(changes.map((one) => statusWords(one).text));
    return { said: [...said].join(", "), of: "moves", tone: "" };
  }
  const about = `${titlePrefix(change)}${actionsText(change.plan.actions)}`;
  if (tone === "bad") return { said, of: about, tone };
  const undone = undoneText(change);
  const words = statusWords(undone === null ? change : { ...change, status: change.state });
  return {
    said: words.text,
    of: undone === null ? about : `${about} · ${undone}`,
    tone: words.tone === "ok" || words.tone === "muted" ? "" : words.tone,
  };
}
