import { fieldAt, fieldsOf, labelOf, type Schema } from "../../forms/schema";
import { type Errors, readField, readObject, type Values, valuesOf, valueText } from "../../forms/values";
import { GUARDRAIL_LABELS, GUARDRAIL_METRICS } from "../../lib/metrics";
import { isCpuListSetting, settingName, tunableOf } from "../../lib/settingKeys";
import { guardrailSchema, limitSchema } from "../../policies/kinds";
import type { Mode } from "../../policies/types";
import {
  experimentSchema,
  factorSchema,
  hasPeer,
  levelSchema,
  maxLevels,
  primaryMetrics,
  scheduleFields,
  workloadSchema,
  workloadTypes,
} from "../experimentSchema";
import type { Kind, Level, Spec, SpecIn, WorkloadType } from "../types";

type SettingDraft = { key: string; value: string };
export type LevelDraft = {
  id: number;
  name: string;
  settings: SettingDraft[];
  policy: { id: number; version: number; mode: Mode } | null;
  irqbalance: boolean;
  irqbalanceCpus: string;
  /** The workload's fields that differ at this level. */
  workload: Values;
  value: string;
  /** The level's part in a template, by which published values find it. */
  role: string;
};
export type FactorDraft = { id: number; name: string; unit: string; levels: LevelDraft[] };

/** The content of the experiment form. schedule: durations, numbers of blocks and the seed, by field name. */
export type Draft = {
  name: string;
  kind: Kind;
  type: WorkloadType;
  workload: Values;
  primary: string;
  peer: number | null;
  factors: FactorDraft[];
  schedule: Values;
  /** The search of a tune, by field path. */
  tune: Values;
  /** By metric; app.NAME for an application metric. */
  guardrails: Values;
  /** Names of the application metrics that are measured, too. */
  applications: string[];
  template: string;
};

/** A valid specification, or the error messages of invalid fields by path. */
export type Reading = { spec: SpecIn; wrong: null } | { spec: null; wrong: Errors };

let lastId = 0;
export const newLevel = (more: Partial<LevelDraft> = {}): LevelDraft => {
  lastId += 1;
  return {
    id: lastId,
    name: "",
    settings: [],
    policy: null,
    irqbalance: false,
    irqbalanceCpus: "",
    workload: {},
    value: "",
    role: "",
    ...more,
  };
};
/** The name of a level that changes nothing. */
const UNCHANGED = "current settings";

export const newFactor = (more: Partial<FactorDraft> = {}): FactorDraft => {
  lastId += 1;
  return { id: lastId, name: "", unit: "", levels: [newLevel({ name: UNCHANGED }), newLevel()], ...more };
};

const tuneValues = (spec?: Spec): Values => valuesOf(experimentSchema("tune"), spec?.tune, "tune");
const scheduleValues = (spec?: Spec): Values =>
  Object.fromEntries(scheduleFields().map(([name, field]) => [name, valueText(field, spec?.[name as keyof Spec])]));

/** An empty form for a kind of experiment, with the backend's defaults. type: of its workload. */
export function newDraft(kind: Kind, type: WorkloadType = workloadTypes()[0] ?? "observe"): Draft {
  const draft = { name: "", kind, type, peer: null, factors: [], guardrails: {}, applications: [], template: "" };
  const [primary = ""] = primaryMetrics(type);
  return withKind(
    { ...draft, workload: valuesOf(workloadSchema(type), {}), primary, schedule: scheduleValues(), tune: tuneValues() },
    kind,
  );
}

/** The name of settings with their values, as far as it may be long. */
const nameOf = (settings: SettingDraft[]): string =>
  settings
    .map(({ key, value }) => `${settingName(key)} = ${value}`)
    .join(", ")
    .slice(0, experimentSchema("name").maxLength);

/** The primary metric of a comparison under existing traffic: what applications notice. */
const NOTICED = "rtt_p99_us";

/** A form that compares the values of a change with those before it, under the node's existing traffic. */
export function draftOfChange(actions: { key: string; was: string; becomes: string }[]): Draft {
  const level = (name: string, value: "was" | "becomes") =>
    newLevel({ name, settings: actions.map((action) => ({ key: action.key, value: action[value] })) });
  const levels = [level("before the change", "was"), level("after the change", "becomes")];
  const name = nameOf(actions.map(({ key, becomes }) => ({ key, value: becomes })));
  return { ...newDraft("ab", "observe"), name, primary: NOTICED, factors: [newFactor({ name: "change", levels })] };
}

/** A form that compares settings, as in the search parameter, with the present ones, under the node's existing traffic. */
export function draftOfSettings(text: string): Draft {
  const settings = text.split(" ").flatMap((part) => {
    const [key = "", value = ""] = part.split(/=(.*)/);
    return value === "" ? [] : [{ key, value }];
  });
  const name = nameOf(settings);
  const levels = [newLevel({ name: UNCHANGED }), newLevel({ name, settings })];
  return { ...newDraft("ab", "observe"), name, primary: NOTICED, factors: [newFactor({ name: "change", levels })] };
}

const MAX_SWEPT = 2;

/** How many factors an experiment of a kind has at most. */
export function maxFactors(kind: Kind): number {
  if (kind === "tune") return experimentSchema("factors").maxItems ?? MAX_SWEPT;
  return { aa: 0, ab: 1, sweep: MAX_SWEPT }[kind];
}

/** The draft after a change of its kind: factors that the new kind cannot have are removed. */
export function withKind(draft: Draft, kind: Kind): Draft {
  const [first = newFactor({ name: "setting" })] = draft.factors;
  if (kind === "aa") return { ...draft, kind, factors: [] };
  if (kind === "ab") return { ...draft, kind, factors: [{ ...first, levels: first.levels.slice(0, 2) }] };
  const factors = draft.factors.length > 0 ? draft.factors : [first];
  return { ...draft, kind, factors: factors.slice(0, maxFactors(kind)) };
}

/** An application metric's name among other metrics. */
export const appMetric = (name: string): string => `app.${name}`;

/** The draft with or without an application metric; one that is no longer measured is neither primary nor a guardrail. */
export function withApplication(draft: Draft, name: string, measured: boolean): Draft {
  const others = draft.applications.filter((one) => one !== name);
  if (measured) return { ...draft, applications: [...others, name] };
  const { [appMetric(name)]: _, ...guardrails } = draft.guardrails;
  const primary = draft.primary === appMetric(name) ? (primaryMetrics(draft.type)[0] ?? "") : draft.primary;
  return { ...draft, applications: others, guardrails, primary };
}

/** The draft after a change of its workload; the primary metric is unchanged if the workload has it. */
export function withWorkload(draft: Draft, type: WorkloadType): Draft {
  const metrics = primaryMetrics(type);
  const { properties = {} } = workloadSchema(type);
  const strip = (level: LevelDraft) => ({
    ...level,
    workload: Object.fromEntries(Object.entries(level.workload).filter(([name]) => name in properties)),
  });
  return {
    ...draft,
    type,
    workload: valuesOf(workloadSchema(type), {}),
    primary: [...metrics, ...draft.applications.map(appMetric)].includes(draft.primary)
      ? draft.primary
      : (metrics[0] ?? ""),
    peer: hasPeer(type) ? draft.peer : null,
    factors: draft.factors.map((factor) => ({ ...factor, levels: factor.levels.map(strip) })),
  };
}

const LATENCY = "tune.latency";

/** The draft; the second metric of a tune becomes another one where it is the primary metric. */
export function withTwoMetrics(draft: Draft): Draft {
  if (draft.kind !== "tune" || draft.tune[LATENCY] !== draft.primary) return draft;
  const other = primaryMetrics(draft.type).find((metric) => metric !== draft.primary) ?? "";
  return { ...draft, tune: { ...draft.tune, [LATENCY]: other } };
}

/** The form filled from a specification; its seed is empty, so that a new one is chosen. */
export function draftOf(spec: Spec): Draft {
  const { type } = spec.workload;
  return {
    name: spec.name,
    kind: spec.kind,
    type,
    workload: valuesOf(workloadSchema(type), spec.workload),
    primary: spec.primary,
    peer: spec.peer_node_id,
    factors: spec.factors.map((factor) =>
      newFactor({ name: factor.name, unit: factor.unit, levels: factor.levels.map(levelDraft) }),
    ),
    schedule: { ...scheduleValues(spec), seed: "" },
    tune: tuneValues(spec),
    guardrails: Object.fromEntries(spec.guardrails.map(({ metric, max }) => [metric, String(max)])),
    applications: spec.application_metrics,
    template: spec.template,
  };
}

const levelDraft = (level: Level): LevelDraft =>
  newLevel({
    name: level.name,
    settings: level.settings.map(({ key, value }) => ({ key, value })),
    policy:
      level.policy === null
        ? null
        : { id: level.policy.policy_id, version: level.policy.version, mode: level.policy.mode as Mode },
    irqbalance: level.irqbalance,
    irqbalanceCpus: level.irqbalance_cpus,
    workload: Object.fromEntries(
      Object.entries(level.workload).map(([name, value]) => [name, value === false ? "" : String(value)]),
    ),
    value: level.value === null ? "" : String(level.value),
    role: level.role,
  });

const NUMBER = /^\d+(\.\d+)?$/;
const axisValue = (value: string): string => (NUMBER.test(value) ? value : "");

/**
 * Generates levels from one setting's values: `0 10 20` makes three levels at these axis positions. unchanged: the
 * setting's present value, for a first level that leaves the node as it is; null where it is unknown.
 */
export function levelsFromValues(key: string, values: string, unchanged?: string | null): LevelDraft[] {
  const name = tunableOf(key);
  const first = unchanged === undefined ? [] : [newLevel({ name: UNCHANGED, value: axisValue(unchanged ?? "") })];
  const others = values
    .split(/[\s;]+/)
    .filter((value) => value !== "" && value !== unchanged)
    .map((value) =>
      newLevel({
        name: `${name} ${value}`,
        settings: [{ key, value }],
        value: axisValue(value),
      }),
    );
  return [...first, ...others].slice(0, maxLevels());
}

/** Parses the form's texts by their schema and collects error messages by path. */
class Reader {
  readonly errors: Errors = {};

  fail(path: string, sentence: string): void {
    this.errors[path] ??= sentence;
  }

  field(schema: Schema, path: string, text: string): unknown {
    return readField(schema, path, { [path]: text }, this.errors);
  }

  setting({ key, value }: SettingDraft, path: string): SettingDraft {
    if (key.trim() === "") this.fail(`${path}.key`, "Enter a setting, for example netdev/eth0/coalesce/rx-usecs.");
    if (value.trim() === "") this.fail(`${path}.value`, "Enter the value that the setting has during a run.");
    const schema = isCpuListSetting(key.trim()) ? { format: "cpu-list" } : { type: "string" };
    return { key: key.trim(), value: this.field(schema, `${path}.value`, value) as string };
  }

  policy(one: LevelDraft["policy"], path: string) {
    if (one === null) return null;
    if (one.id === 0) this.fail(path, "Choose a policy.");
    return { policy_id: one.id, version: one.version, mode: one.mode };
  }

  level(one: LevelDraft, path: string, workload: Schema): SpecIn["factors"][number]["levels"][number] {
    const read = (name: "name" | "value" | "irqbalance_cpus", text: string) =>
      this.field(fieldAt(levelSchema(), name), `${path}.${name}`, text);
    const fields = Object.entries(one.workload).flatMap(([name, text]) => {
      const field = workload.properties?.[name];
      return field === undefined ? [] : [[name, this.field(field, `${path}.workload.${name}`, text)]];
    });
    return {
      name: read("name", one.name) as string,
      settings: one.settings.map((setting, place) => this.setting(setting, `${path}.settings.${place}`)),
      policy: this.policy(one.policy, `${path}.policy`),
      irqbalance: one.irqbalance,
      irqbalance_cpus: one.irqbalance ? (read("irqbalance_cpus", one.irqbalanceCpus) as string) : "",
      workload: Object.fromEntries(fields),
      value: read("value", one.value) as number | null,
      role: one.role,
    };
  }

  factor(factor: FactorDraft, path: string, workload: Schema): SpecIn["factors"][number] {
    const { levels } = factor;
    const name = this.field(fieldAt(factorSchema(), "name"), `${path}.name`, factor.name) as string;
    if (new Set(levels.map((one) => one.name.trim())).size < levels.length)
      this.fail(`${path}.name`, "Two levels have the same name.");
    if (levels.length > maxLevels()) this.fail(`${path}.name`, `At most ${maxLevels()} levels.`);
    return {
      name,
      unit: this.field(fieldAt(factorSchema(), "unit"), `${path}.unit`, factor.unit) as string,
      levels: levels.map((one, index) => this.level(one, `${path}.levels.${index}`, workload)),
    };
  }
}

/** Parses the form into a specification for a node, or into the error messages of its fields. */
export function readSpec(draft: Draft, nodeId: number | undefined): Reading {
  const reader = new Reader();
  const read = (name: string, text: string) => reader.field(experimentSchema(name), name, text);
  const workload = workloadSchema(draft.type);
  const name = read("name", draft.name);
  const factors = draft.factors.map((factor, place) => reader.factor(factor, `factors.${place}`, workload));
  const fields = fieldsOf(workload).map(([field, schema]) => [
    field,
    reader.field(schema, `workload.${field}`, draft.workload[field] ?? ""),
  ]);
  const schedule = scheduleFields().map(([field]) => [field, read(field, draft.schedule[field] ?? "")]);
  const tune = readObject(experimentSchema("tune"), "tune", draft.tune, reader.errors);
  const primary = read("primary", draft.primary);
  const limit = (metric: string) =>
    metric in GUARDRAIL_LABELS ? guardrailSchema(metric as keyof typeof GUARDRAIL_LABELS) : limitSchema(metric, "");
  const guardrails = [...GUARDRAIL_METRICS, ...draft.applications.map(appMetric)]
    .filter((metric) => draft.guardrails[metric]?.trim())
    .map((metric) => ({
      metric,
      max: reader.field(limit(metric), `guardrails.${metric}`, draft.guardrails[metric] ?? ""),
    }));
  if (nodeId === undefined) reader.fail("node_id", "Choose a node first.");
  if (Object.keys(reader.errors).length > 0) return { spec: null, wrong: reader.errors };
  const spec = {
    name,
    kind: draft.kind,
    node_id: nodeId,
    workload: { type: draft.type, ...Object.fromEntries(fields) },
    primary,
    peer_node_id: draft.peer,
    factors,
    ...Object.fromEntries(schedule),
    tune,
    guardrails,
    application_metrics: draft.applications,
    template: draft.template,
  };
  return { spec: spec as SpecIn, wrong: null };
}

/** The first invalid field with its label: `Level 2, name: At most 80 characters.` */
export function firstError(wrong: Errors): string {
  const [path = "", sentence = ""] = Object.entries(wrong)[0] ?? [];
  const [part = "", , field, level, what] = path.split(".");
  const label = labelOf(experimentSchema().properties?.[part] ?? {}, part).split(",")[0];
  const place = part !== "factors" ? label : field === "levels" ? `Level ${Number(level) + 1}, ${what}` : "Factor";
  return `${place}: ${sentence}`;
}
