import { useSyncExternalStore } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { openChangesQuery, queryClient } from "../api/queries";

type Change = Schemas["Change"];

const SHOWN_AFTER_END_MS = 10_000;

const isOpen = (change: Change): boolean => change.state === "applying" || change.state === "unconfirmed";

/** Changes of policies and experiments need no confirmation by a person, and may be many. */
export const isByPerson = ({ policy_id, experiment_id }: Change): boolean =>
  policy_id === null && experiment_id === null;

let ended: Change[] = [];
const listeners = new Set<() => void>();

function setEnded(changes: Change[]): void {
  ended = changes;
  for (const listener of listeners) listener();
}

function showEnd(change: Change): void {
  if (ended.some((other) => other.id === change.id && other.state === change.state)) return;
  setEnded([change, ...ended.filter((other) => other.id !== change.id)]);
  setTimeout(() => setEnded(ended.filter((other) => other !== change)), SHOWN_AFTER_END_MS);
}

/** Whether a change is older than a known one: steps are append-only, and a response may arrive after a later live event. */
const isOlder = (change: Change, than: Change | undefined): boolean =>
  than?.id === change.id && than.steps.length > change.steps.length;

/** Merges a change from a live event or a response into the cached open and ended changes; ignores older versions. */
export function applyChangeUpdate(change: Change): void {
  merge(change, false);
}

/** Adds or replaces an open change in the cached list, or removes one that has ended from it. */
function list(change: Change): void {
  queryClient.setQueryData(openChangesQuery.queryKey, (page) => {
    if (page === undefined || page.changes.some((other) => isOlder(change, other))) return page;
    const known = page.changes.some((other) => other.id === change.id);
    if (!isOpen(change)) return { ...page, changes: page.changes.filter((other) => other.id !== change.id) };
    const changes = page.changes.map((other) => (other.id === change.id ? change : other));
    return { ...page, changes: known || !isByPerson(change) ? changes : [change, ...changes] };
  });
}

function merge(change: Change, endMissed: boolean): void {
  const open = queryClient.getQueryData(openChangesQuery.queryKey)?.changes ?? [];
  if ([...open, ...ended].some((other) => isOlder(change, other))) return;
  list(change);
  // A pending request may answer with the state before this change.
  const request = queryClient.getQueryCache().find({ queryKey: openChangesQuery.queryKey });
  if (request?.state.fetchStatus !== "idle") request?.promise?.then(() => list(change)).catch(() => undefined);
  // Ended changes are also sent later, with their observation.
  const isNews = endMissed || [...open, ...ended].some((other) => other.id === change.id);
  if (!isOpen(change) && isNews) showEnd(change);
  void queryClient.invalidateQueries({ queryKey: ["changes", "node", change.node_id] });
  void queryClient.invalidateQueries({ queryKey: ["suggestions", change.node_id] });
  void queryClient.invalidateQueries({ queryKey: ["preview", change.node_id] });
}

/** Fetches a change that ended while the live connection was down. Rejects with ApiProblem. */
export async function fetchMissedEnd(id: string): Promise<void> {
  if (ended.some((change) => change.id === id)) return;
  merge(await unwrap(api.GET("/api/v1/changes/{change_id}", { params: { path: { change_id: id } } })), true);
}

/** Changes that ended within the last 10 s, newest first. */
export function useEndedChanges(): Change[] {
  return useSyncExternalStore(
    (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
    () => ended,
  );
}
