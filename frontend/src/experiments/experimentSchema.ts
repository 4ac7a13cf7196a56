import { formSchemas } from "../forms/formSchemas";
import { type Field, fieldAt, fieldsOf, inputOf, memberOf, membersOf, type Schema } from "../forms/schema";
import type { Kind, WorkloadType } from "./types";

/** The schema of an experiment's specification, or of one of its fields. */
export function experimentSchema(path?: string): Schema {
  const { experiment } = formSchemas();
  return path === undefined ? experiment : fieldAt(experiment, path);
}

/** Durations, numbers of blocks and the seed: every number of an experiment but the ids of nodes. */
export function scheduleFields(): Field[] {
  return fieldsOf(experimentSchema()).filter(([name, field]) => inputOf(field) === "number" && !name.endsWith("_id"));
}

export const factorSchema = (): Schema => experimentSchema("factors").items ?? {};
export const levelSchema = (): Schema => fieldAt(factorSchema(), "levels").items ?? {};
export const mostLevels = (): number => fieldAt(factorSchema(), "levels").maxItems ?? Number.POSITIVE_INFINITY;

export const kindLabel = (kind: string): string => experimentSchema("kind").enum_labels?.[kind] ?? kind;
export const kindHelp = (kind: Kind): string => experimentSchema("kind").enum_descriptions?.[kind] ?? "";

/** The types of workload in the order in which the form offers them. */
export const workloadTypes = (): WorkloadType[] =>
  Object.keys(membersOf(experimentSchema("workload"))) as WorkloadType[];

/** The fields of a workload, with its name as title and a sentence about it. */
export const workloadSchema = (type: WorkloadType): Schema => memberOf(experimentSchema("workload"), type);

/** Whether a workload has a server and a client, which may be on another node. */
export const hasPeer = (type: WorkloadType): boolean => "server_cpus" in (workloadSchema(type).properties ?? {});

/** The metrics of a workload that may be primary, the usual one first. */
export const primaryMetrics = (type: WorkloadType): string[] => workloadSchema(type).metrics ?? [];
