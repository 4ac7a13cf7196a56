import type { Schemas } from "../api/client";
import { isCpuListSetting, settingName, settingValue } from "../lib/settingKeys";

type Change = Schemas["Change"];
type Action = Pick<Change["plan"]["actions"][number], "key" | "was" | "becomes">;

const MAX_NAMED = 3;
const AFFINITY = /^irq\/(\d+)\/affinity$/;

/** `33, 37, 38 +2`: the first three texts, in order, so that those of two lists match; one where all are the same. */
function named(all: string[]): string {
  const shown = new Set(all).size === 1 ? all.slice(0, 1) : all;
  const more = shown.length - MAX_NAMED;
  return `${shown.slice(0, MAX_NAMED).join(", ")}${more > 0 ? ` +${more}` : ""}`;
}

/** `CPU ` or `CPUs ` where the values are CPU lists. */
function unitOf(actions: Action[]): string {
  const values = actions.flatMap(({ was, becomes }) => [was, becomes]);
  if (!actions.every(({ key }) => isCpuListSetting(key)) || !values.every((value) => /^\d/.test(value))) return "";
  return values.every((value) => /^\d+$/.test(value)) ? "CPU " : "CPUs ";
}

/** What a change touches and its values: `IRQ 52` and `CPU 8 → 24`; of unlike settings the first, without values. */
export function changeWords(actions: Action[]): { what: string; values: string } {
  const [first] = actions;
  if (first === undefined) return { what: "no setting", values: "" };
  const irqs = actions.flatMap(({ key }) => AFFINITY.exec(key)?.[1] ?? []);
  const alike = actions.length === 1 || irqs.length === actions.length;
  const side = (of: "was" | "becomes") => named(actions.map((action) => settingValue(action.key, action[of])));
  if (!alike) return { what: `${settingName(first.key)} and ${actions.length - 1} more`, values: "" };
  return {
    what: actions.length > 1 ? `IRQs ${named(irqs)}` : settingName(first.key),
    values: `${unitOf(actions)}${side("was")} → ${side("becomes")}`,
  };
}

/** Before the words of a change that undoes another, or restores the values as found. */
export const titlePrefix = ({ undoes, restores }: Pick<Change, "undoes" | "restores">): string =>
  undoes !== null ? "undo: " : restores ? "restore: " : "";

/** The words of a change, which also say if it is an undo: `undo: IRQ 52` and `CPU 24 → 8`. */
export function titleWords(change: Pick<Change, "plan" | "undoes" | "restores">): ReturnType<typeof changeWords> {
  const { what, values } = changeWords(change.plan.actions);
  return { what: `${titlePrefix(change)}${what}`, values };
}
