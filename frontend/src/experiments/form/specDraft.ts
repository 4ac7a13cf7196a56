import { CpuListError, formatCpuList, parseCpuList } from "../../lib/cpulist";
import { takesCpus, tunableOf } from "../../lib/settingKeys";
import { METRIC_NAMES } from "../../policies/kinds";
import type { Metric as GuardrailMetric, Mode } from "../../policies/types";
import type { Kind, Level, Spec, SpecIn, WorkloadType } from "../types";
import { type Field, hasPeer, WORKLOADS, workloadTexts } from "./workloads";

type SettingDraft = { key: string; value: string };
export type LevelDraft = {
  id: number;
  name: string;
  settings: SettingDraft[];
  policy: { id: number; version: number; mode: Mode } | null;
  irqbalance: boolean;
  /** The workload's fields that differ at this level. */
  workload: Record<string, string>;
  value: string;
};
export type FactorDraft = { id: number; name: string; unit: string; levels: LevelDraft[] };

/** An experiment as it is typed. texts: the numbers by their names in the specification. */
export type Draft = {
  name: string;
  kind: Kind;
  type: WorkloadType;
  workload: Record<string, string>;
  primary: string;
  peer: number | null;
  factors: FactorDraft[];
  texts: Record<NumberName, string>;
  guardrails: Record<string, string>;
  template: string;
};

type NumberField = {
  label: string;
  unit: string;
  help: string;
  initial: number;
  min: number;
  max: number;
  whole?: true;
};

/** How long and how often: the same bounds and defaults as in the backend's specification. */
export const NUMBERS = {
  warmup_s: {
    label: "Warm-up",
    unit: "s",
    help: "Load without measuring, before each run.",
    initial: 2,
    min: 0.5,
    max: 60,
  },
  measure_s: { label: "Measured", unit: "s", help: "Of each run.", initial: 10, min: 1, max: 300 },
  settle_s: {
    label: "Settling",
    unit: "s",
    help: "After a policy or irqbalance was put in force.",
    initial: 20,
    min: 0,
    max: 120,
  },
  blocks: {
    label: "Blocks",
    unit: "",
    help: "Of the comparison: the more, the smaller a difference is found.",
    initial: 6,
    min: 3,
    max: 50,
    whole: true,
  },
  aa_blocks: {
    label: "A/A blocks",
    unit: "",
    help: "Of the node with itself, before the comparison.",
    initial: 6,
    min: 3,
    max: 50,
    whole: true,
  },
} as const satisfies Record<string, NumberField>;
type NumberName = keyof typeof NUMBERS | "seed";
const MOST_SEED = 2 ** 31 - 1;
export const MOST_LEVELS = 16;

/** What a draft says: a specification, or by path the sentence for what does not fit. */
export type Reading = { spec: SpecIn; wrong: null } | { spec: null; wrong: Record<string, string> };

let lastId = 0;
export const newLevel = (more: Partial<LevelDraft> = {}): LevelDraft => {
  lastId += 1;
  return { id: lastId, name: "", settings: [], policy: null, irqbalance: false, workload: {}, value: "", ...more };
};
export const newFactor = (more: Partial<FactorDraft> = {}): FactorDraft => {
  lastId += 1;
  return { id: lastId, name: "", unit: "", levels: [newLevel({ name: "as it is" }), newLevel()], ...more };
};

/** A draft of a kind of experiment, with the defaults of the backend. */
export function newDraft(kind: Kind): Draft {
  const texts = Object.fromEntries(Object.entries(NUMBERS).map(([name, { initial }]) => [name, String(initial)]));
  return withKind(
    {
      name: "",
      kind,
      type: "tcp-stream",
      workload: workloadTexts("tcp-stream"),
      primary: WORKLOADS["tcp-stream"].primary[0] ?? "",
      peer: null,
      factors: [],
      texts: { ...(texts as Draft["texts"]), seed: "" },
      guardrails: {},
      template: "",
    },
    kind,
  );
}

/** The same draft for another kind: it keeps of the factors what that kind can have. */
export function withKind(draft: Draft, kind: Kind): Draft {
  const [first = newFactor({ name: "setting" })] = draft.factors;
  if (kind === "aa") return { ...draft, kind, factors: [] };
  if (kind === "ab") return { ...draft, kind, factors: [{ ...first, levels: first.levels.slice(0, 2) }] };
  return { ...draft, kind, factors: draft.factors.length > 0 ? draft.factors : [first] };
}

/** The same draft with another workload, whose usual figure decides unless the chosen one is among its own. */
export function withWorkload(draft: Draft, type: WorkloadType): Draft {
  const { primary } = WORKLOADS[type];
  const strip = (level: LevelDraft) => ({
    ...level,
    workload: Object.fromEntries(Object.entries(level.workload).filter(([name]) => name in WORKLOADS[type].fields)),
  });
  return {
    ...draft,
    type,
    workload: workloadTexts(type),
    primary: primary.includes(draft.primary) ? draft.primary : (primary[0] ?? ""),
    peer: hasPeer(type) ? draft.peer : null,
    factors: draft.factors.map((factor) => ({ ...factor, levels: factor.levels.map(strip) })),
  };
}

/** The draft that reads as this specification; a new seed is drawn. */
export function draftOf(spec: Spec): Draft {
  const { type, ...fields } = spec.workload;
  const numbers = Object.keys(NUMBERS) as (keyof typeof NUMBERS)[];
  return {
    name: spec.name,
    kind: spec.kind,
    type,
    workload: workloadTexts(type, fields),
    primary: spec.primary,
    peer: spec.peer_node_id,
    factors: spec.factors.map((factor) =>
      newFactor({ name: factor.name, unit: factor.unit, levels: factor.levels.map(levelDraft) }),
    ),
    texts: { ...(Object.fromEntries(numbers.map((name) => [name, String(spec[name])])) as Draft["texts"]), seed: "" },
    guardrails: Object.fromEntries(spec.guardrails.map(({ metric, max }) => [metric, String(max)])),
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
    workload: Object.fromEntries(Object.entries(level.workload).map(([name, value]) => [name, String(value)])),
    value: level.value === null ? "" : String(level.value),
  });

/** Levels of a sweep over one setting's values: `0 10 20` makes three, each with its place on the axis. */
export function levelsOf(key: string, values: string): LevelDraft[] {
  const name = tunableOf(key);
  return values
    .split(/[\s;]+/)
    .filter((value) => value !== "")
    .slice(0, MOST_LEVELS)
    .map((value) =>
      newLevel({
        name: `${name} ${value}`,
        settings: [{ key, value }],
        value: /^\d+(\.\d+)?$/.test(value) ? value : "",
      }),
    );
}

export function specOf(draft: Draft, nodeId: number | undefined): Reading {
  const wrong: Record<string, string> = {};
  const say = (path: string, sentence: string) => {
    wrong[path] ??= sentence;
  };
  const number = (path: string, text: string, { min, max, whole }: { min: number; max: number; whole?: boolean }) => {
    const value = Number(text.trim());
    const fits = text.trim() !== "" && Number.isFinite(value) && value >= min && value <= max;
    if (!fits || (whole && !Number.isInteger(value)))
      say(path, `A ${whole ? "whole " : ""}number from ${min.toLocaleString("en")} to ${max.toLocaleString("en")}.`);
    return value;
  };
  const cpus = (path: string, text: string) => {
    try {
      return formatCpuList(parseCpuList(text));
    } catch (error) {
      if (!(error instanceof CpuListError)) throw error;
      say(path, error.message);
      return text;
    }
  };
  const name = (path: string, text: string) => {
    const trimmed = text.trim();
    if (trimmed === "" || trimmed.length > 80) say(path, "A name of up to 80 letters.");
    return trimmed;
  };
  const field = (path: string, { of }: Field, text: string): string | number | boolean => {
    if (of.input === "number") return number(path, text, { ...of, whole: true });
    if (of.input === "cpus") return cpus(path, text);
    if (of.input === "check") return text === "true";
    if (of.input === "name" && !/^[a-z0-9][a-z0-9_-]{0,63}$/.test(text.trim()))
      say(path, "Small letters, digits, - and _, as in the agent's configuration.");
    return text.trim();
  };
  const policy = (path: string, one: LevelDraft["policy"]) => {
    if (one === null) return null;
    if (one.id === 0) say(`${path}.policy`, "Choose the policy.");
    return { policy_id: one.id, version: one.version, mode: one.mode };
  };
  const { fields } = WORKLOADS[draft.type];
  const level = (one: LevelDraft, path: string): SpecIn["factors"][number]["levels"][number] => ({
    name: name(`${path}.name`, one.name),
    settings: one.settings.map(({ key, value }, place) => {
      const at = `${path}.settings.${place}`;
      if (key.trim() === "") say(`${at}.key`, "A setting, for example netdev/eth0/coalesce/rx-usecs.");
      if (value.trim() === "") say(`${at}.value`, "The value that it has for the time of a run.");
      return { key: key.trim(), value: takesCpus(key.trim()) ? cpus(`${at}.value`, value) : value.trim() };
    }),
    policy: policy(path, one.policy),
    irqbalance: one.irqbalance,
    workload: Object.fromEntries(
      Object.entries(one.workload).flatMap(([of, text]) =>
        fields[of] === undefined ? [] : [[of, field(`${path}.workload.${of}`, fields[of], text)]],
      ),
    ),
    value:
      one.value.trim() === ""
        ? null
        : number(`${path}.value`, one.value, { min: -Number.MAX_SAFE_INTEGER, max: Number.MAX_SAFE_INTEGER }),
  });
  const factors = draft.factors.map((factor, place) => {
    const path = `factors.${place}`;
    if (new Set(factor.levels.map((one) => one.name.trim())).size < factor.levels.length)
      say(`${path}.name`, "Two of its levels have the same name.");
    if (factor.levels.length > MOST_LEVELS) say(`${path}.name`, `At most ${MOST_LEVELS} levels.`);
    return {
      name: name(`${path}.name`, factor.name),
      unit: factor.unit.trim(),
      levels: factor.levels.map((one, index) => level(one, `${path}.levels.${index}`)),
    };
  });
  const typed = Object.fromEntries(
    Object.entries(fields).map(([of, one]) => [of, field(`workload.${of}`, one, draft.workload[of] ?? "")]),
  );
  const numbers = Object.fromEntries(
    Object.entries(NUMBERS).map(([of, one]) => [of, number(of, draft.texts[of as NumberName], one)]),
  ) as Record<keyof typeof NUMBERS, number>;
  const seed = draft.texts.seed.trim();
  if (draft.primary.trim() === "") say("primary", "The figure that decides is named before anything is measured.");
  const spec: SpecIn = {
    name: name("name", draft.name),
    kind: draft.kind,
    node_id: nodeId ?? 0,
    // the fields are those of this type, in WORKLOADS
    workload: { type: draft.type, ...typed } as SpecIn["workload"],
    primary: draft.primary.trim(),
    peer_node_id: draft.peer,
    factors,
    ...numbers,
    seed: seed === "" ? null : number("seed", seed, { min: 0, max: MOST_SEED, whole: true }),
    guardrails: METRIC_NAMES.flatMap((metric: GuardrailMetric) => {
      const text = draft.guardrails[metric]?.trim() ?? "";
      return text === "" ? [] : [{ metric, max: number(`guardrails.${metric}`, text, { min: 0, max: 1e12 }) }];
    }),
    template: draft.template,
  };
  if (nodeId === undefined) say("node_id", "Choose the node first.");
  return Object.keys(wrong).length > 0 ? { spec: null, wrong } : { spec, wrong: null };
}

const PLACES: Record<string, string> = {
  name: "Name",
  node_id: "Node",
  primary: "Figure",
  seed: "Seed",
  peer: "Sent by",
};

/** The first thing that does not fit, with the name of its field: `Level 2, name: A name of up to 80 letters.` */
export function firstOf(wrong: Record<string, string>): string {
  const [path = "", sentence = ""] = Object.entries(wrong)[0] ?? [];
  const [part = "", , field, level, what] = path.split(".");
  const named: string | undefined = PLACES[part] ?? (NUMBERS as Record<string, { label: string }>)[part]?.label;
  const place =
    part === "factors"
      ? field === "levels"
        ? `Level ${Number(level) + 1}, ${what}`
        : "What is varied"
      : (named ?? { workload: "Load", guardrails: "Guardrails" }[part] ?? part);
  return `${place}: ${sentence}`;
}
