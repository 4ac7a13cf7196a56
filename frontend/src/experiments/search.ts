import type { State } from "./types";

/** The experiments' parts of the URL. */

export const STATES = ["queued", "running", "done", "stopped", "cancelled", "failed"] as const satisfies State[];

export type ListSearch = { node?: number; state?: State; older?: number };
export type NewSearch = {
  node?: number;
  /** The template that the form was filled from; `own` for a form of one's own. */
  template?: string;
  /** The experiment that the form was filled from. */
  from?: number;
};
export type ExperimentSearch = {
  /** The figure that is looked at; the primary one when absent. */
  metric?: string;
  /** The place of the looked-at combination of levels in the list of arms; the first after the baseline when absent. */
  arm?: number;
  /** The share of each CPU's time that the heat shows; busy when absent. */
  share?: string;
};

const whole = (value: unknown): number | undefined => {
  const number = Number(value ?? Number.NaN);
  return Number.isSafeInteger(number) && number > 0 ? number : undefined;
};
const word = (value: unknown): string | undefined => (typeof value === "string" && value !== "" ? value : undefined);

/** Search parameters arrive as strings; what does not fit is left out. */
export const validateListSearch = (search: Record<string, unknown>): ListSearch => ({
  node: whole(search.node),
  state: STATES.find((state) => state === search.state),
  older: whole(search.older),
});

export const validateNewSearch = (search: Record<string, unknown>): NewSearch => ({
  node: whole(search.node),
  template: word(search.template),
  from: whole(search.from),
});

export const validateExperimentSearch = (search: Record<string, unknown>): ExperimentSearch => ({
  metric: word(search.metric),
  arm: whole(search.arm),
  share: word(search.share),
});
