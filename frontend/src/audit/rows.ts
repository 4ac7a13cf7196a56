import type { Schemas } from "../api/client";

type Entry = Pick<Schemas["AuditEntry"], "change">;
type Change = Pick<Schemas["Change"], "id" | "created_by" | "created_at" | "policy_id" | "experiment_id">;

/** A row of the audit log: an entry, those of a change, or those of the moves of a policy or experiment in an hour. */
export type Row<E, C> = {
  key: string;
  /** Newest first. */
  entries: [E, ...E[]];
  /** What they are about, newest first; without those that no longer exist. */
  changes: C[];
};

/** `policy web v4 2026-11-21T08`: what the moves of one row have in common; of people's changes the id. */
function keyOf({ id, created_by, created_at, policy_id, experiment_id }: Change): string {
  const isOfPerson = policy_id === null && experiment_id === null;
  return isOfPerson ? id : `${created_by} ${created_at.slice(0, 13)}`;
}

/** Entries, newest first, as rows: those that belong together are one row, in the place of the newest. */
export function rowsOf<E extends Entry & { id: number }, C extends Change>(entries: E[], changes: C[]): Row<E, C>[] {
  const byId = new Map(changes.map((change) => [change.id, change]));
  const rows = new Map<string, Row<E, C>>();
  for (const entry of entries) {
    const change = byId.get(entry.change ?? "");
    const key = change !== undefined ? keyOf(change) : (entry.change ?? String(entry.id));
    const row = rows.get(key);
    if (row === undefined) rows.set(key, { key, entries: [entry], changes: change === undefined ? [] : [change] });
    else {
      row.entries.push(entry);
      if (change !== undefined && !row.changes.includes(change)) row.changes.push(change);
    }
  }
  return [...rows.values()];
}
