import { formSchemas } from "../forms/formSchemas";
import { fieldAt, type Schema } from "../forms/schema";
import { type Errors, plainNumber, readObject, splitWords, type Values, valuesOf } from "../forms/values";
import type { Spec } from "./types";

/** The schema of a study's specification, or of one of its fields. */
export function studySchema(path?: string): Schema {
  const { simulation } = formSchemas();
  return path === undefined ? simulation : fieldAt(simulation, path);
}

/** The texts of a form filled from a specification, or with the defaults. */
export const studyValues = (spec?: Spec): Values => valuesOf(studySchema(), spec);

/** A valid specification, or the error messages of invalid fields by path. */
export type StudyReading = { spec: Spec; wrong: null } | { spec: null; wrong: Errors };

const LISTS = ["schemes", "patterns", "job_types", "imbalances"];

/** Parses the form into a specification, or into the error messages of its fields. */
export function readStudy(values: Values): StudyReading {
  const wrong: Errors = {};
  const spec = readObject(studySchema(), "", values, wrong);
  for (const name of LISTS) {
    const words = splitWords(values[name] ?? "");
    if (words.length === 0) wrong[name] ??= "Choose at least one.";
    if (new Set(words).size < words.length) wrong[name] ??= "A value is given twice.";
  }
  return Object.keys(wrong).length > 0 ? { spec: null, wrong } : { spec: spec as Spec, wrong: null };
}

/** The first invalid field with its label: `Seeds: A whole number from 1 to 100.` */
export function firstStudyError(wrong: Errors): string {
  const [path = "", sentence = ""] = Object.entries(wrong)[0] ?? [];
  return `${studySchema(path).title ?? path}: ${sentence}`;
}

/** A value of a parameter as the form shows it: `50 µs`, `16`. */
export function parameterText(name: string, value: number): string {
  const { scale = 1, unit } = studySchema(`parameters.${name}`);
  return [plainNumber(value * scale), unit].filter(Boolean).join(" ");
}
