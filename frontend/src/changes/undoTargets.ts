import type { Schemas } from "../api/client";
import { MAX_PLAN_ACTIONS } from "../api/constants";
import { settingValue } from "../lib/settingKeys";
import { dateTime } from "../lib/time";
import type { Change } from "./queries";
import { isRedoable } from "./state";

type Desired = Schemas["DesiredValueIn"];
type Written = Schemas["WrittenSetting"];

/** Values that an undo can lead to, with a name for each. */
export type Target = { id: string; label: string; desired: Desired[] };

/** The value of a setting before the first change on record. */
const found = ({ key, values }: Written): Desired[] => {
  const first = values.at(-1);
  return first === undefined ? [] : [{ key, value: first.value }];
};

const isAsFound = ({ values }: Written): boolean => values[0]?.value === values.at(-1)?.value;

/** The settings that changes wrote on a node, as before them: as many as a plan has room for, restored ones last. */
export const asFound = (written: Written[]): Desired[] =>
  written
    .toSorted((a, b) => Number(isAsFound(a)) - Number(isAsFound(b)))
    .flatMap(found)
    .slice(0, MAX_PLAN_ACTIONS);

/** The values that a change replaced. */
export const valuesBefore = (change: Change): Desired[] =>
  change.plan.actions.map(({ key, was }) => ({ key, value: was }));

/** To what a change can be undone: the values before it, as found, an earlier value, or everything on its node; each once. */
export function undoTargets(change: Change, written: Written[]): Target[] {
  const { actions } = change.plan;
  const keys = new Set(actions.map(({ key }) => key));
  const mine = written.filter(({ key }) => keys.has(key));
  const [only] = mine;
  const targets: Target[] = isRedoable(change)
    ? [
        {
          id: "again",
          label: "the values of this change",
          desired: actions.map(({ key, becomes }) => ({ key, value: becomes })),
        },
      ]
    : [{ id: "before", label: "the values before this change", desired: valuesBefore(change) }];
  if (mine.length > 0)
    targets.push({ id: "found", label: "as found, before the first change on record", desired: mine.flatMap(found) });
  if (mine.length === 1 && actions.length === 1 && only !== undefined)
    for (const { value, at, by } of only.values.slice(0, -1))
      if (at !== null)
        targets.push({
          id: `value ${value}`,
          label: `${settingValue(only.key, value)}, set ${dateTime(Date.parse(at))} by ${by}`,
          desired: [{ key: only.key, value }],
        });
  if (written.length > mine.length)
    targets.push({ id: "node", label: `every change on ${change.node_name}, as found`, desired: asFound(written) });
  const texts = targets.map(({ desired }) => JSON.stringify(desired));
  return targets.filter((_, at) => texts.indexOf(texts[at] ?? "") === at);
}
