import { formSchemas } from "../forms/formSchemas";
import { type Field, fieldAt, fieldsOf, inputOf, memberOf, membersOf, type Schema } from "../forms/schema";
import type { Kind, WorkloadType } from "./types";

/** The schema of an experiment's specification, or of one of its fields. */
export function experimentSchema(path?: string): Schema {
  const { experiment } = formSchemas();
  return path === undefined ? experiment : fieldAt(experiment, path);
}

/** The schedule's fields: durations, numbers of blocks and the seed. */
export function scheduleFields(): Field[] {
  return fieldsOf(experimentSchema()).filter(([name, field]) => inputOf(field) === "number" && !name.endsWith("_id"));
}

export const factorSchema = (): Schema => experimentSchema("factors").items ?? {};
export const levelSchema = (): Schema => fieldAt(factorSchema(), "levels").items ?? {};
export const maxLevels = (): number => fieldAt(factorSchema(), "levels").maxItems ?? Number.POSITIVE_INFINITY;

export const kindLabel = (kind: string): string => experimentSchema("kind").enum_labels?.[kind] ?? kind;
export const kindHelp = (kind: Kind): string => experimentSchema("kind").enum_descriptions?.[kind] ?? "";

/** The types of workload in the order in which the form offers them. */
export const workloadTypes = (): WorkloadType[] =>
  Object.keys(membersOf(experimentSchema("workload"))) as WorkloadType[];

/** The schema of a workload: its fields, with its name as title and its summary as description. */
export const workloadSchema = (type: WorkloadType): Schema => memberOf(experimentSchema("workload"), type);

/** Whether a workload has a client that can run on another node (the peer). */
export const hasPeer = (type: WorkloadType): boolean => {
  const fields = workloadSchema(type).properties ?? {};
  return "server_cpus" in fields || "machines" in fields;
};

/** The metrics of a workload that may be the primary metric, the default first. */
export const primaryMetrics = (type: WorkloadType): string[] => workloadSchema(type).metrics ?? [];
