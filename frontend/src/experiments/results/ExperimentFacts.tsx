import { Scroll } from "../../components/Scroll";
import { labelOf, type Schema } from "../../forms/schema";
import { formatFigure, linkSpeed, UNKNOWN } from "../../lib/format";
import { settingName } from "../../lib/settingKeys";
import { guardrailText } from "../../policies/kinds";
import { armName, metricOf } from "../arms";
import { kindLabel, scheduleFields, workloadSchema } from "../experimentSchema";
import experimentsStyles from "../experiments.module.css";
import { figureText } from "../format";
import type { Experiment, Level } from "../types";
import styles from "./results.module.css";

/** The settings of an experiment before and after it. */
export function SettingsNow({ settings: { before, after } }: Pick<Experiment, "settings">) {
  const keys = Object.keys(before);
  if (keys.length === 0) return null;
  const restored = after !== null && keys.every((key) => after[key] === before[key]);
  return (
    <section className="card" aria-label="Settings before and after">
      <h2>
        Settings before and after
        <span className="grow" />
        {after !== null && (
          <span className={restored ? "ok" : "bad"}>
            <span aria-hidden="true">{restored ? "✓" : "!"}</span> {restored ? "all restored" : "not all restored"}
          </span>
        )}
      </h2>
      <Scroll label="Settings before and after, table">
        <table className="table">
          <thead>
            <tr>
              <th>setting</th>
              <th>before</th>
              <th>after</th>
            </tr>
          </thead>
          <tbody>
            {keys.map((key) => (
              <tr key={key}>
                <td title={key}>{settingName(key)}</td>
                <td className="mono">{before[key]}</td>
                {after === null ? (
                  <td className="muted">not finished</td>
                ) : (
                  <td className={`mono ${after[key] === before[key] ? "" : "bad"}`}>{after[key] ?? "gone"}</td>
                )}
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

/** Discarded runs, with the rule that discarded each. */
export function Discarded({ experiment }: { experiment: Experiment }) {
  const discarded = experiment.runs.filter((run) => run.discarded !== null);
  if (discarded.length === 0) return null;
  const { unit, label } = metricOf(experiment, experiment.spec.primary);
  return (
    <section className="card" aria-label="Discarded runs">
      <h2>
        Discarded runs <small>by rules that do not use the measured values; each was repeated</small>
      </h2>
      <Scroll label="Discarded runs, table">
        <table className={`table ${styles.long}`}>
          <thead>
            <tr>
              <th className="n">run</th>
              <th className="n">attempt</th>
              <th>arm</th>
              <th>reason</th>
              <th className="n">{label}</th>
            </tr>
          </thead>
          <tbody>
            {discarded.map(({ planned, attempt, discarded: why, figures }) => (
              <tr key={`${planned.number} ${attempt}`}>
                <td className="n">{planned.number + 1}</td>
                <td className="n">{attempt + 1}</td>
                <td>{armName(experiment, planned.arm)}</td>
                <td className="wrap">{why}</td>
                <td className="n">{figureText(figures[experiment.spec.primary], unit)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

/** What a level changes. netdev: by which the load arrives, if that is recorded. */
function levelText(level: Level, netdev: string): string {
  const parts = [
    ...level.settings.map(({ key, value }) => `${settingName(key.replace("{netdev}", netdev))} = ${value}`),
    ...(level.policy === null
      ? []
      : [`policy ${level.policy.policy_id} v${level.policy.version}, ${level.policy.mode}`]),
    ...(level.irqbalance
      ? [level.irqbalance_cpus === "" ? "irqbalance runs" : `irqbalance runs, on CPU ${level.irqbalance_cpus} only`]
      : []),
    ...Object.entries(level.workload).map(([name, value]) => `${name} ${value}`),
  ];
  return parts.length === 0 ? "the node as it is" : parts.join(", ");
}

/** A value as text: `ens5 (driver ena, queues 8)` rather than JSON. */
export function specValueText(value: unknown): string {
  if (value === null || value === undefined) return UNKNOWN;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(specValueText).join("; ");
  if (typeof value !== "object") return value === "" ? "none" : String(value);
  const { name, ...others } = value as Record<string, unknown>;
  const parts = Object.entries(others)
    .filter(([, part]) => part !== null)
    .map(([of, part]) =>
      of === "speed_bits_per_s"
        ? formatFigure(linkSpeed(Number(part)))
        : `${of.replaceAll("_", " ")} ${specValueText(part)}`,
    )
    .join(", ");
  return name === undefined ? parts : `${specValueText(name)} (${parts})`;
}

/** The label of a field of the machine: `numa_nodes` is `NUMA nodes`, `agent_version` is `Agent version`. */
function machineLabel(name: string): string {
  const words = name.replaceAll("_", " ").replace(/\b(cpu|numa|irq|nic|l3)/g, (word) => word.toUpperCase());
  return words.charAt(0).toUpperCase() + words.slice(1);
}

/** Whether a rate is not limited: the largest one that the field allows. */
const isUnlimited = (name: string, value: unknown, field: Schema | undefined): boolean =>
  name.startsWith("limit_") && value === field?.maximum;

/** Specification and machine of an experiment. */
export function SpecFacts({ experiment }: { experiment: Experiment }) {
  const { spec, seed, machine } = experiment;
  const { type, ...fields } = spec.workload;
  const workload = workloadSchema(type);
  const netdev = typeof machine.netdev === "string" ? machine.netdev : "{netdev}";
  const facts: [string, string][] = [
    ["Kind", kindLabel(spec.kind)],
    ["Workload", workload.title ?? type],
    ...Object.entries(fields).map(([name, value]): [string, string] => {
      const field = workload.properties?.[name];
      return [
        field === undefined ? name : labelOf(field, name),
        value === "" ? "any" : isUnlimited(name, value, field) ? "no limit" : specValueText(value),
      ];
    }),
    ["Primary metric", metricOf(experiment, spec.primary).label],
    ...spec.factors.flatMap((factor) =>
      factor.levels.map((level, place): [string, string] => [
        `${factor.name}, ${place === 0 ? "baseline" : level.name}`,
        place === 0 ? `${level.name}: ${levelText(level, netdev)}` : levelText(level, netdev),
      ]),
    ),
    ...scheduleFields().map(([name, field]): [string, string] => [
      labelOf(field, name),
      String({ ...spec, seed }[name as keyof typeof spec]),
    ]),
    ...spec.guardrails.map((guardrail): [string, string] => ["Guardrail", guardrailText(guardrail)]),
    ...Object.entries(machine).map(([name, value]): [string, string] => [machineLabel(name), specValueText(value)]),
  ];
  return (
    <section className="card" aria-label="Specification and machine">
      <h2>Specification and machine</h2>
      <dl className={`body ${experimentsStyles.facts}`}>
        {facts.map(([name, value], place) => (
          // biome-ignore lint/suspicious/noArrayIndexKey: the list never changes its order
          <div key={place}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
