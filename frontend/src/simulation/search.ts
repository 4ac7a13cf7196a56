import * as v from "valibot";
import { numberWithin, param, positiveInteger, validated } from "../lib/searchParams";

export const PATTERNS = ["nn", "aa"] as const;

const ListSearchSchema = v.object({
  /** Only studies with a lower id. */
  older: param(positiveInteger),
});

const NewSearchSchema = v.object({
  /** The study that the form was filled from. */
  from: param(positiveInteger),
});

const StudySearchSchema = v.object({
  /** The pattern that the charts show; the study's first one when absent. */
  pattern: param(v.picklist(PATTERNS)),
  /** The imbalance that the charts show; the study's first one when absent. */
  v: param(numberWithin({ minimum: 0, maximum: 2 })),
});

/** The parts of the URL of one study. */
export type StudySearch = v.InferOutput<typeof StudySearchSchema>;

export const validateStudiesSearch = validated(ListSearchSchema);
export const validateNewStudySearch = validated(NewSearchSchema);
export const validateStudySearch = validated(StudySearchSchema);
