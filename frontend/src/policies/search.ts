/** The policy page's parts of the URL. */

export const TABS = ["edit", "versions", "rollout", "replay"] as const;
export type Tab = (typeof TABS)[number];

export type PolicySearch = {
  /** Which part is open; edit when absent. */
  tab?: Tab;
  /** The version looked at: begun from in the form, compared, rolled out or replayed; the newest when absent. */
  version?: number;
  /** The version it is compared with; the one before it when absent. */
  diff?: number;
  /** The nodes of the preview, `3,17`; a few live ones when absent. */
  nodes?: string;
  /** The node whose past is replayed. */
  node?: number;
  /** The replayed hour's start and end in Unix milliseconds. */
  from?: number;
  to?: number;
};

const whole = (value: unknown): number | undefined => {
  const number = Number(value ?? Number.NaN);
  return Number.isSafeInteger(number) && number > 0 ? number : undefined;
};

const MOST_MS = 3_600_000;

/** Search parameters arrive as strings; what does not fit is left out. */
export function validatePolicySearch(search: Record<string, unknown>): PolicySearch {
  const [from, to] = [whole(search.from), whole(search.to)];
  const range = from !== undefined && to !== undefined && to > from && to - from <= MOST_MS;
  return {
    tab: TABS.find((tab) => tab === search.tab && tab !== "edit"),
    version: whole(search.version),
    diff: whole(search.diff),
    nodes: typeof search.nodes === "string" && /^\d+(,\d+)*$/.test(search.nodes) ? search.nodes : undefined,
    node: whole(search.node),
    from: range ? from : undefined,
    to: range ? to : undefined,
  };
}

export type NewPolicySearch = { kind?: string; nodes?: string };
