import type { Schemas } from "../api/client";
import { clockOffsetMs } from "../lib/clock";
import { duration, formatCount } from "../lib/format";
import { zonedTime } from "../lib/time";
import { movedBy } from "./controllers";
import { userOf } from "./queueUsers";

/** A fact that limits what can be changed, or what the figures say. why: its explanation. */
export type Warning = { text: string; why: string; kind: "warn" | "bad" };

const SKEW_SHOWN_MS = 1000;

/** What a user must know about a node before changing it. */
export function warningsOf(node: Schemas["Node"]): Warning[] {
  const { inventory } = node;
  const found: Warning[] = [];
  const add = (text: string, why: string, kind: Warning["kind"] = "warn") => found.push({ text, why, kind });
  if (node.mode === "observe") add("observe only", node.observe_reason ?? "Its settings cannot be changed.");
  for (const controller of inventory?.controllers ?? [])
    add(`${controller} runs`, `Moves ${movedBy(controller)}; may overwrite a change`);
  for (const user of inventory?.queue_users ?? []) add(`${user.device}: ${userOf(user)}`, "Its interrupts never move");
  if (node.outside_windows) {
    const { opens_at } = node.outside_windows;
    const until = opens_at === null ? "now" : `until ${zonedTime(Date.parse(opens_at))}`;
    add("outside its change windows", `Policies write nothing here ${until}, except in an experiment`);
  }
  if (inventory?.limits.unusable) add("limits unreadable: changes nothing", inventory.limits.unusable);
  for (const [path, sentence] of Object.entries(inventory?.dropped_rows ?? {}))
    add(`${path}: rows dropped`, `The agent cannot parse a part of ${path}. ${sentence}`);
  const skew = clockOffsetMs(node) ?? 0;
  if (Math.abs(skew) > SKEW_SHOWN_MS)
    add(
      `clock ${duration(Math.abs(skew) / 1000)} ${skew > 0 ? "ahead" : "behind"}`,
      node.clock_correction_ms === 0
        ? "Times on this page are in the node's clock"
        : "Times on this page are corrected by this offset, which was measured when the agent connected",
    );
  if (node.rejected_samples > 0)
    add(
      `${formatCount(node.rejected_samples, "sample")} rejected`,
      "Invalid, or above the node's quota; the audit log and the agent's log say why",
      "bad",
    );
  return found;
}
