import * as v from "valibot";
import { filledText, param, positiveInteger, validated } from "../lib/searchParams";
import type { State } from "./types";

export const STATES = ["queued", "running", "done", "stopped", "cancelled", "failed"] as const satisfies State[];

const ListSearchSchema = v.object({
  node: param(positiveInteger),
  state: param(v.picklist(STATES)),
  /** Only experiments with a lower id. */
  older: param(positiveInteger),
});

/** The parts of the URL of the list, of the form and of one experiment. */
export type ListSearch = v.InferOutput<typeof ListSearchSchema>;
export type NewExperimentSearch = v.InferOutput<typeof NewSearchSchema>;
export type ExperimentSearch = v.InferOutput<typeof ExperimentSearchSchema>;

const NewSearchSchema = v.object({
  node: param(positiveInteger),
  /** The template that the form was filled from; `own` for an empty form. */
  template: param(filledText),
  /** The experiment that the form was filled from. */
  from: param(positiveInteger),
  /** The tune whose best combination is compared with its baseline. */
  confirm: param(positiveInteger),
  /** The change whose values are compared with those before it. */
  change: param(filledText),
  /** Settings that are compared with the node as it is: `irq/31/affinity=12 irq/32/affinity=8`. */
  settings: param(filledText),
});

const ExperimentSearchSchema = v.object({
  /** The metric shown in detail; the primary one when absent. */
  metric: param(filledText),
  /** The index of the selected arm; the first after the baseline when absent. */
  arm: param(positiveInteger),
  /** The share of each CPU's time that the heatmap shows; busy when absent. */
  share: param(filledText),
});

export const validateListSearch = validated(ListSearchSchema);
export const validateNewSearch = validated(NewSearchSchema);
export const validateExperimentSearch = validated(ExperimentSearchSchema);
