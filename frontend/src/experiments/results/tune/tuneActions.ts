import { newDraft, readBody } from "../../../policies/editor/policyDraft";
import type { PolicyBody } from "../../../policies/types";
import type { Experiment, Level, Spec } from "../../types";

export type TuneResult = NonNullable<Experiment["tune"]>;
export type Candidate = TuneResult["candidates"][number];
type Arm = Candidate["arm"];

/** The candidate with the best estimate, null while there is none. */
export function bestOf({ tune }: Pick<Experiment, "tune">): Candidate | null {
  return tune?.candidates.find(({ state }) => state === "best") ?? null;
}

const levelsOf = (spec: Spec, arm: Arm): Level[] =>
  spec.factors.flatMap((factor, place) => factor.levels[arm[place] ?? 0] ?? []);

/** A combination of levels as one level. */
function combined(spec: Spec, arm: Arm, name: string): Level {
  const levels = levelsOf(spec, arm);
  return {
    name,
    settings: levels.flatMap(({ settings }) => settings),
    policy: levels.find(({ policy }) => policy !== null)?.policy ?? null,
    irqbalance: levels.some(({ irqbalance }) => irqbalance),
    irqbalance_cpus: levels.find(({ irqbalance }) => irqbalance)?.irqbalance_cpus ?? "",
    workload: Object.assign({}, ...levels.map(({ workload }) => workload)),
    value: null,
    role: "",
  };
}

const MAX_NAME = 80;
const cut = (name: string) => (name.length <= MAX_NAME ? name : `${name.slice(0, MAX_NAME - 1)}…`);

/** Why the best combination cannot be compared with the baseline; null if it can. */
export function whyNotConfirmed({ spec, tune }: Pick<Experiment, "spec" | "tune">): string | null {
  const best = bestOf({ tune });
  if (best === null) return "There is no best combination yet.";
  if (best.arm.every((level) => level === 0)) return "The best combination is the baseline.";
  const policies = levelsOf(spec, best.arm).filter(({ policy }) => policy !== null);
  return policies.length > 1 ? "The best combination has several policies; an A/B experiment compares one." : null;
}

/** An A/B experiment that compares the best combination of a tune with its baseline, under the same load. */
export function confirmationOf({ spec, tune }: Pick<Experiment, "spec" | "tune">): Spec {
  const best = bestOf({ tune });
  const arm = best?.arm ?? [];
  const baseline = combined(
    spec,
    spec.factors.map(() => 0),
    "as it was",
  );
  return {
    ...spec,
    name: cut(`${spec.name}, confirmation`),
    kind: "ab",
    factors: [{ name: "combination", unit: "", levels: [baseline, combined(spec, arm, cut(best?.name ?? "best"))] }],
    blocks: 6,
    aa_blocks: 6,
    template: "",
  };
}

const NETDEV = /^netdev\/([^/]+)\//;
const PLACEHOLDER = "{netdev}";
/** Settings of interrupts and processes have numbers that mean something else on another node. */
const PORTABLE = /^(netdev|kernel)\//;

/** What of a combination cannot be part of a policy of fixed settings, as phrases. */
function leftOut(levels: Level[]): string[] {
  const settings = levels.flatMap((level) => level.settings).filter(({ key }) => !PORTABLE.test(key));
  return [
    ...settings.map(({ key, value }) => `${key} = ${value} (an interrupt or process of this node only)`),
    ...levels.flatMap(({ policy }) =>
      policy === null ? [] : [`policy ${policy.policy_id} v${policy.version} (enable that policy instead)`],
    ),
    ...(levels.some(({ irqbalance }) => irqbalance) ? ["irqbalance (not a setting)"] : []),
    ...levels.flatMap(({ workload }) =>
      Object.entries(workload).map(([field, value]) => `${field} = ${value} (of the generated load)`),
    ),
  ];
}

/** A policy that keeps the settings of a tune's best combination and what is left out of it, or why there can be none. */
export function policyOf({
  id,
  name,
  node_name,
  spec,
  machine,
  tune,
}: Pick<Experiment, "id" | "name" | "node_name" | "spec" | "machine" | "tune">):
  | { body: PolicyBody; why: null; leftOut: string[] }
  | { body: null; why: string; leftOut: string[] } {
  const best = bestOf({ tune });
  if (best === null) return { body: null, why: "There is no best combination yet.", leftOut: [] };
  const levels = levelsOf(spec, best.arm);
  const left = leftOut(levels);
  const portable = levels.flatMap((level) => level.settings).filter(({ key }) => PORTABLE.test(key));
  if (portable.length === 0)
    return { body: null, why: "The best combination has no setting that other nodes have too.", leftOut: left };
  const netdevs = [...new Set(portable.flatMap(({ key }) => NETDEV.exec(key)?.[1] ?? []))];
  const [netdev] = netdevs;
  const known = (machine.netdevs ?? []) as { name: string; driver: string | null }[];
  const driver = known.find((one) => one.name === netdev)?.driver ?? null;
  // Several devices keep their names: each may have another value.
  const general = netdevs.length === 1 && (netdev === PLACEHOLDER || driver !== null);
  const keyOf = (key: string) => (general ? key.replace(NETDEV, `netdev/${PLACEHOLDER}/`) : key);
  const drivers = general && driver !== null ? [driver] : [];
  const { latency, limit } = spec.tune;
  const draft = newDraft("fixed-settings");
  const values = {
    ...draft.values,
    name: cut(`${name} (experiment ${id})`),
    mode: "recommend",
    "spec.settings": portable.map(({ key, value }) => `${keyOf(key)}=${value}`).join(" "),
    "selector.drivers": drivers.join(" "),
    "selector.hostnames": drivers.length > 0 ? "" : node_name,
    "scope.drivers": drivers.join(" "),
    ...(latency === "rtt_p99_us" && limit !== null ? { "guardrails.rtt_p99_us": String(limit) } : {}),
  };
  const { body, wrong } = readBody({ ...draft, values });
  return body === null
    ? { body, why: Object.values(wrong)[0] ?? "", leftOut: left }
    : { body, why: null, leftOut: left };
}
