import { Checkbox, Input, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Schemas } from "../../api/client";
import { applicationMetricsQuery } from "../../api/queries";
import { NodeSelect } from "../../components/NodePicker";
import { Segments } from "../../components/Segments";
import { SchemaInput } from "../../forms/SchemaField";
import { fieldsOf, labelOf, optionsOf } from "../../forms/schema";
import { GUARDRAIL_METRICS, labelWithUnit } from "../../lib/metrics";
import { guardrailSchema, limitSchema } from "../../policies/kinds";
import layoutStyles from "../../policies/policies.module.css";
import {
  experimentSchema,
  hasPeer,
  kindHelp,
  primaryMetrics,
  scheduleFields,
  workloadSchema,
  workloadTypes,
} from "../experimentSchema";
import type { Kind } from "../types";
import { FactorEditor } from "./FactorEditor";
import { FormPart } from "./FormPart";
import { knownSettings } from "./knownSettings";
import {
  appMetric,
  type Draft,
  maxFactors,
  newFactor,
  withApplication,
  withKind,
  withTwoMetrics,
  withWorkload,
} from "./specDraft";

type Props = {
  draft: Draft;
  node: Schemas["Node"] | undefined;
  wrong: Record<string, string>;
  /** Whether empty fields are reported too. */
  showMissing: boolean;
  onChange: (draft: Draft) => void;
};

const kindOptions = () =>
  optionsOf(experimentSchema("kind")).map(({ value, label }) => ({
    value: value as Kind,
    label,
    title: kindHelp(value as Kind),
  }));

/** The form of an experiment. */
export function SpecForm({ draft, node, wrong, showMissing, onChange: onEdited }: Props) {
  const onChange = (next: Draft) => onEdited(withTwoMetrics(next));
  const declared = useQuery(applicationMetricsQuery).data ?? [];
  const known = useMemo(() => knownSettings(node?.inventory), [node]);
  const workload = workloadSchema(draft.type);
  /** The message at a field; an empty field has none before the form is submitted. */
  const at = (path: string, text: string) => (text === "" && !showMissing ? undefined : wrong[path]);
  return (
    <>
      <FormPart title="Comparison">
        <SchemaInput
          schema={experimentSchema("name")}
          value={draft.name}
          error={at("name", draft.name)}
          onChange={(name) => onChange({ ...draft, name })}
        />
        <Input.Wrapper
          size="xs"
          label="Kind"
          labelElement="div"
          description={kindHelp(draft.kind)}
          descriptionProps={{ mb: 4 }}
        >
          <Segments
            label="Kind"
            value={draft.kind}
            options={kindOptions()}
            onChange={(kind) => onChange(withKind(draft, kind))}
          />
        </Input.Wrapper>
      </FormPart>
      <FormPart title="Workload" note={workload.description}>
        <NativeSelect
          label="Type"
          value={draft.type}
          data={workloadTypes().map((value) => ({ value, label: workloadSchema(value).title ?? value }))}
          onChange={(event) => onChange(withWorkload(draft, event.currentTarget.value as Draft["type"]))}
        />
        {hasPeer(draft.type) && (
          <NodeSelect
            label={experimentSchema("peer_node_id").title ?? ""}
            none={experimentSchema("peer_node_id").placeholder ?? "none"}
            except={node?.id}
            nodeId={draft.peer ?? undefined}
            onChange={(peer) => onChange({ ...draft, peer: peer ?? null })}
          />
        )}
        {fieldsOf(workload).map(([name, field]) => (
          <SchemaInput
            key={`${draft.type} ${name}`}
            schema={field}
            name={name}
            value={draft.workload[name] ?? ""}
            error={at(`workload.${name}`, draft.workload[name] ?? "")}
            onChange={(value) => onChange({ ...draft, workload: { ...draft.workload, [name]: value } })}
          />
        ))}
      </FormPart>
      {draft.factors.map((factor, place) => (
        <FactorEditor
          key={factor.id}
          factor={factor}
          path={`factors.${place}`}
          kind={draft.kind}
          type={draft.type}
          known={known}
          at={at}
          onChange={(next) =>
            onChange({ ...draft, factors: draft.factors.map((one) => (one.id === factor.id ? next : one)) })
          }
          onRemove={
            draft.factors.length > 1
              ? () => onChange({ ...draft, factors: draft.factors.filter((one) => one.id !== factor.id) })
              : null
          }
        />
      ))}
      {draft.factors.length > 0 && draft.kind !== "ab" && draft.factors.length < maxFactors(draft.kind) && (
        <p className={layoutStyles.note}>
          <button
            type="button"
            className="link"
            onClick={() => onChange({ ...draft, factors: [...draft.factors, newFactor()] })}
          >
            {draft.kind === "tune" ? "Add a factor" : "Add a second factor"}
          </button>
          {draft.kind === "tune"
            ? ": combinations of the levels of all factors are searched."
            : ": every combination of both is measured."}
        </p>
      )}
      <ApplicationMetrics draft={draft} declared={declared} onChange={onChange} />
      <PrimaryMetric draft={draft} declared={declared} at={at} onChange={onChange} />
      {draft.kind === "tune" && <Search draft={draft} wrong={wrong} onChange={onChange} />}
      <Schedule draft={draft} wrong={wrong} onChange={onChange} />
      <Guardrails draft={draft} declared={declared} wrong={wrong} onChange={onChange} />
    </>
  );
}

type Declared = { declared: Schemas["ApplicationMetric"][] };

/** The Prometheus queries that each run measures, too; nothing where none is declared. */
function ApplicationMetrics({ draft, declared, onChange }: Pick<Props, "draft" | "onChange"> & Declared) {
  const { title = "", description } = experimentSchema("application_metrics");
  if (declared.length === 0) return null;
  return (
    <FormPart title={title} note={description}>
      {declared.map(({ name, label }) => (
        <Checkbox
          key={name}
          label={label}
          checked={draft.applications.includes(name)}
          onChange={(event) => onChange(withApplication(draft, name, event.currentTarget.checked))}
        />
      ))}
    </FormPart>
  );
}

/** The chosen application metrics with the names that they have among other metrics. */
const chosen = (draft: Draft, declared: Declared["declared"]) =>
  draft.applications.map((name) => {
    const { label = name, unit = "" } = declared.find((one) => one.name === name) ?? {};
    return { metric: appMetric(name), label, unit };
  });

type PrimaryProps = Pick<Props, "draft" | "onChange"> &
  Declared & { at: (path: string, text: string) => string | undefined };

/** The metric that decides the experiment, named before anything is measured. */
function PrimaryMetric({ draft, declared, at, onChange }: PrimaryProps) {
  const schema = experimentSchema("primary");
  const applications = chosen(draft, declared).map(({ metric, label, unit }) => ({
    value: metric,
    label: unit === "" ? label : `${label}, ${unit}`,
  }));
  const metrics = [...new Set([...primaryMetrics(draft.type), draft.primary])]
    .filter((name) => name !== "" && !applications.some(({ value }) => value === name))
    .map((value) => ({ value, label: labelWithUnit(value) }));
  return (
    <FormPart title="Primary metric">
      {draft.type === "command" ? (
        <TextInput
          label="Metric"
          description="command.NAME is the number that the command printed under this name."
          value={draft.primary}
          error={at("primary", draft.primary)}
          onChange={(event) => onChange({ ...draft, primary: event.currentTarget.value })}
        />
      ) : (
        <NativeSelect
          label="Metric"
          description={schema.description}
          value={draft.primary}
          data={[...metrics, ...applications]}
          onChange={(event) => onChange({ ...draft, primary: event.currentTarget.value })}
        />
      )}
    </FormPart>
  );
}

type PartProps = Pick<Props, "draft" | "wrong" | "onChange">;

/** The second metric of a tune with its limit, and when the search ends at the latest. */
function Search({ draft, wrong, onChange }: PartProps) {
  const metrics = [...new Set([...primaryMetrics(draft.type), draft.tune["tune.latency"] ?? ""])];
  return (
    <FormPart
      title="Search"
      note="Each block measures the baseline and up to five combinations. Poor ones are eliminated early; what violates a guardrail is eliminated at once."
    >
      {fieldsOf(experimentSchema("tune")).map(([name, field]) => {
        const path = `tune.${name}`;
        const value = draft.tune[path] ?? "";
        const set = (next: string) => onChange({ ...draft, tune: { ...draft.tune, [path]: next } });
        if (name !== "latency")
          return <SchemaInput key={name} schema={field} name={name} value={value} error={wrong[path]} onChange={set} />;
        return (
          <NativeSelect
            key={name}
            label={labelOf(field, name)}
            description={field.description}
            value={value}
            error={wrong[path]}
            data={metrics
              .filter((metric) => metric !== "" && metric !== draft.primary)
              .map((metric) => ({ value: metric, label: labelWithUnit(metric) }))}
            onChange={(event) => set(event.currentTarget.value)}
          />
        );
      })}
    </FormPart>
  );
}

const BLOCKS = ["blocks", "aa_blocks"];

/** Durations, numbers of blocks and the seed of the order of the runs. */
function Schedule({ draft, wrong, onChange }: PartProps) {
  return (
    <FormPart title="Schedule">
      {scheduleFields()
        .filter(([name]) => draft.kind !== "tune" || !BLOCKS.includes(name))
        .map(([name, field]) => (
          <SchemaInput
            key={name}
            schema={field}
            name={name}
            value={draft.schedule[name] ?? ""}
            error={wrong[name]}
            onChange={(value) => onChange({ ...draft, schedule: { ...draft.schedule, [name]: value } })}
          />
        ))}
    </FormPart>
  );
}

/** The bounds at which the experiment stops. */
function Guardrails({ draft, declared, wrong, onChange }: PartProps & Declared) {
  const node = GUARDRAIL_METRICS.map((metric) => ({ metric, schema: guardrailSchema(metric) }));
  const applications = chosen(draft, declared).map(({ metric, label, unit }) => ({
    metric,
    schema: limitSchema(label, unit),
  }));
  return (
    <FormPart title="Guardrails" note={experimentSchema("guardrails").description}>
      {[...node, ...applications].map(({ metric, schema }) => (
        <SchemaInput
          key={metric}
          schema={schema}
          value={draft.guardrails[metric] ?? ""}
          error={wrong[`guardrails.${metric}`]}
          onChange={(value) => onChange({ ...draft, guardrails: { ...draft.guardrails, [metric]: value } })}
        />
      ))}
    </FormPart>
  );
}
