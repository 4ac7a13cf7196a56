import { CpuListError, formatCpuList, parseCpuList } from "../../lib/cpulist";
import { readLabels } from "../../settings/EditLabels";
import { DAMPINGS, type Field, fieldsOf, METRIC_NAMES, SCOPES, SELECTORS } from "../kinds";
import type { Kind, PolicyBody, Spec } from "../types";
import { type ClassDraft, classDraft, readClasses } from "./classDraft";

/**
 * A policy as it is typed: texts and checks by the path of the body's field, as `spec.act_percent`, and
 * `spec.weights.nice` for one of a list's choices. classes: of a kind that has them.
 */
export type Draft = {
  kind: Kind;
  mode: PolicyBody["mode"];
  on_controller: PolicyBody["on_controller"];
  on_drift: PolicyBody["on_drift"];
  texts: Record<string, string>;
  checks: Record<string, boolean>;
  classes: ClassDraft[];
};

type SpecDraft = Pick<Draft, "texts" | "checks" | "classes">;

/** What a draft says: a body, or by path the sentence for what does not fit. */
export type Reading = { body: PolicyBody; wrong: null } | { body: null; wrong: Record<string, string> };

const SELECTOR_LISTS = Object.keys(SELECTORS) as (keyof typeof SELECTORS)[];
const SCOPE_LISTS = Object.keys(SCOPES) as (keyof typeof SCOPES)[];
const DAMPING_NAMES = Object.keys(DAMPINGS) as (keyof typeof DAMPINGS)[];

/** A number without what a multiplication leaves behind (0.55 × 100 is 55). */
const plain = (value: number) => String(Number(value.toPrecision(12)));

function shown(field: Field, value: unknown): string {
  return field.of.input === "number" ? plain(Number(value) * (field.of.factor ?? 1)) : String(value);
}

/** The specification's fields as a draft has them; of another kind's draft they are its initial ones. */
function specDraft(kind: Kind, spec: Record<string, unknown> = {}): SpecDraft {
  const draft: SpecDraft = { texts: {}, checks: {}, classes: [] };
  for (const [name, field] of fieldsOf(kind)) {
    const value = spec[name] ?? field.initial;
    const list = () => (Array.isArray(value) ? value : JSON.parse(String(value)));
    if (field.of.input === "check") draft.checks[`spec.${name}`] = value === true;
    else if (field.of.input === "classes") draft.classes = list().map(classDraft);
    else if (field.of.input === "choices") for (const option of list()) draft.checks[`spec.${name}.${option}`] = true;
    else draft.texts[`spec.${name}`] = shown(field, value);
  }
  return draft;
}

/** A new policy of a kind, with the defaults that the node's own code has. */
export function newDraft(kind: Kind): Draft {
  return {
    kind,
    mode: "recommend",
    on_controller: "warn",
    on_drift: "warn",
    ...specDraft(kind),
    texts: {
      ...specDraft(kind).texts,
      rank: "100",
      ...Object.fromEntries(DAMPING_NAMES.map((name) => [`damping.${name}`, String(DAMPINGS[name].initial)])),
    },
  };
}

/** The draft that reads as this body. */
export function draftOf(body: PolicyBody): Draft {
  const { texts, checks, classes } = specDraft(body.spec.type, body.spec);
  const labels = Object.entries(body.selector.labels).map(([key, value]) => `${key}=${value}`);
  return {
    kind: body.spec.type,
    mode: body.mode,
    on_controller: body.on_controller,
    on_drift: body.on_drift,
    checks,
    classes,
    texts: {
      ...texts,
      name: body.name,
      rank: String(body.rank),
      "selector.labels": labels.join(" "),
      ...Object.fromEntries(SELECTOR_LISTS.map((name) => [`selector.${name}`, body.selector[name].join(" ")])),
      ...Object.fromEntries(SCOPE_LISTS.map((name) => [`scope.${name}`, body.scope[name].join(" ")])),
      ...Object.fromEntries(DAMPING_NAMES.map((name) => [`damping.${name}`, plain(body.damping[name])])),
      ...Object.fromEntries(body.guardrails.map(({ metric, max }) => [`guardrails.${metric}`, plain(max)])),
    },
  };
}

/** The same policy as another kind: only its specification begins anew. */
export function withKind(draft: Draft, kind: Kind): Draft {
  const spec = specDraft(kind);
  const others = Object.entries(draft.texts).filter(([path]) => !path.startsWith("spec."));
  return {
    ...draft,
    kind,
    checks: spec.checks,
    classes: spec.classes,
    texts: { ...Object.fromEntries(others), ...spec.texts },
  };
}

const words = (line: string | undefined) => (line ?? "").split(/[\s,]+/).filter(Boolean);

/** Reads a draft. Everything that does not fit is told at once, each by its field's path. */
export function bodyOf(draft: Draft): Reading {
  const wrong: Record<string, string> = {};
  const text = (path: string) => (draft.texts[path] ?? "").trim();

  const number = (path: string, min: number, max: number, whole = false): number => {
    const value = text(path) === "" ? Number.NaN : Number(text(path));
    if (Number.isNaN(value) || value < min || value > max || (whole && !Number.isInteger(value)))
      wrong[path] = `A ${whole ? "whole " : ""}number from ${min} to ${max.toLocaleString("en")}.`;
    return value;
  };

  const cpus = (path: string): string => {
    try {
      return formatCpuList(parseCpuList(text(path)));
    } catch (error) {
      if (!(error instanceof CpuListError)) throw error;
      wrong[path] = error.message;
      return "";
    }
  };

  if (text("name") === "") wrong.name = "A policy needs a name.";
  const spec: Record<string, unknown> = { type: draft.kind };
  for (const [name, { of }] of fieldsOf(draft.kind)) {
    const path = `spec.${name}`;
    if (of.input === "number") spec[name] = Number(plain(number(path, of.min, of.max, of.whole) / (of.factor ?? 1)));
    else if (of.input === "classes") spec[name] = readClasses(draft.classes, path, wrong);
    else if (of.input === "choices")
      spec[name] = Object.keys(of.options).filter((option) => draft.checks[`${path}.${option}`]);
    else if (of.input === "check") spec[name] = draft.checks[path] ?? false;
    else spec[name] = of.input === "cpus" ? cpus(path) : text(path);
  }
  const labels = readLabels(text("selector.labels"));
  if (typeof labels === "string") wrong["selector.labels"] = labels;
  const guardrails = METRIC_NAMES.filter((metric) => text(`guardrails.${metric}`) !== "").map((metric) => ({
    metric,
    max: number(`guardrails.${metric}`, 0, metric === "busiest_cpu_percent" ? 100 : 1e9),
  }));
  const rank = number("rank", 0, 999, true);
  const damping = {
    moves_per_step: number("damping.moves_per_step", 1, 100, true),
    dwell_s: number("damping.dwell_s", 0, 86_400),
    min_revert_s: number("damping.min_revert_s", 0, 86_400),
  };
  if (Object.keys(wrong).length > 0 || typeof labels === "string") return { body: null, wrong };
  const lists = <T extends string>(part: string, names: T[]) =>
    Object.fromEntries(names.map((name) => [name, words(draft.texts[`${part}.${name}`])])) as Record<T, string[]>;
  return {
    wrong: null,
    body: {
      name: text("name"),
      rank,
      mode: draft.mode,
      spec: spec as Spec,
      selector: { labels, ...lists("selector", SELECTOR_LISTS) },
      scope: lists("scope", SCOPE_LISTS),
      damping,
      on_controller: draft.on_controller,
      on_drift: draft.on_drift,
      guardrails,
    },
  };
}

/** What a path of a body is called on the form: `spec.act_percent` is “Act from a load of, %”. */
export function pathName(path: string, kinds: Kind[]): string {
  const [part = "", name = "", item] = path.split(/[.[\]]+/);
  const unit = (label: string, of?: string) => (of === undefined ? label : `${label}, ${of}`);
  if (part === "spec" && name === "classes" && item) return `Class ${item}`;
  if (part === "spec") {
    const field = kinds.flatMap(fieldsOf).find(([other]) => other === name)?.[1];
    if (field !== undefined)
      return unit(field.label, field.of.input === "number" && field.of.factor ? "share" : field.unit);
  }
  if (part === "selector" && name in SELECTORS) return `For: ${SELECTORS[name as keyof typeof SELECTORS].label}`;
  if (part === "selector") return path.startsWith("selector.labels.") ? `For: Label ${path.slice(16)}` : "For: Labels";
  if (part === "scope" && name in SCOPES) return `Only: ${SCOPES[name as keyof typeof SCOPES].label}`;
  if (part === "damping" && name in DAMPINGS) {
    const damping = DAMPINGS[name as keyof typeof DAMPINGS];
    return unit(damping.label, damping.unit);
  }
  return NAMES[part] ?? path;
}

const NAMES: Record<string, string> = {
  name: "Name",
  rank: "Rank",
  mode: "Mode",
  on_controller: "While another program moves interrupts",
  on_drift: "When somebody changes what it set",
  guardrails: "Guardrails",
};
