import { formSchemas } from "../forms/formSchemas";
import { fieldAt, memberOf, membersOf, type Schema } from "../forms/schema";
import { formatFigure, significant } from "../lib/format";
import { GUARDRAIL_LABELS } from "../lib/metrics";
import type { Kind, Metric, Mode, PolicyBody } from "./types";

/** The schema of a policy's body, or of one of its fields such as `damping.dwell_s`. */
export function policySchema(path?: string): Schema {
  const { policy } = formSchemas();
  return path === undefined ? policy : fieldAt(policy, path);
}

/** The kinds of policy in the order in which the form offers them. */
export const kindNames = (): Kind[] => Object.keys(membersOf(policySchema("spec"))) as Kind[];

/** The schema of a kind of policy: its fields, with its name as title and its summary as description. */
export const kindSchema = (kind: Kind): Schema => memberOf(policySchema("spec"), kind);
export const kindLabel = (kind: Kind): string => kindSchema(kind).title ?? kind;

/** The help text of a mode. */
export const modeHelp = (mode: Mode): string | undefined => policySchema("mode").enum_descriptions?.[mode];

/** The label of a response to drift or to another controller. */
export const ownershipLabel = (ownership: PolicyBody["on_drift"]): string =>
  policySchema("on_drift").enum_labels?.[ownership] ?? ownership;

/** The schema of the form field for a metric's guardrail: `RTT p99 limit, µs`. */
export function guardrailSchema(metric: Metric): Schema {
  const { label, unit } = GUARDRAIL_LABELS[metric];
  return limitSchema(label, unit);
}

/** The schema of the field for a guardrail on a metric with this label and unit. */
export function limitSchema(label: string, unit: string): Schema {
  const schema = fieldAt(policySchema("guardrails").items ?? {}, "max");
  return { ...schema, title: `${label} limit`, unit, placeholder: "no limit" };
}

type Limit = { metric: string; max: number };

const guardrailLabel = (metric: string) => GUARDRAIL_LABELS[metric as Metric] ?? { label: metric, unit: "" };

/** A guardrail as text: `RTT p99 ≤ 500 µs`. */
export const guardrailText = (limit: Limit): string => `${guardrailLabel(limit.metric).label} ${limitText(limit)}`;

/** The limit of a guardrail as text: `≤ 500 µs`. */
export function limitText({ metric, max }: Limit): string {
  const value = Number.isInteger(max) ? max.toLocaleString("en") : significant(max);
  return `≤ ${formatFigure({ value, unit: guardrailLabel(metric).unit })}`;
}
