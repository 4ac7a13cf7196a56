import { Input, NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { applicationMetricsQuery } from "../../api/queries";
import { Segments } from "../../components/Segments";
import { appMetric } from "../../experiments/form/specDraft";
import { Fold } from "../../forms/Fold";
import { Presets } from "../../forms/Presets";
import { type FormProps, SchemaFields, SchemaInput } from "../../forms/SchemaField";
import { fieldsOf, inputOf, labelOf, optionsOf, type Schema } from "../../forms/schema";
import type { Errors } from "../../forms/values";
import { GUARDRAIL_METRICS } from "../../lib/metrics";
import { guardrailSchema, kindLabel, kindNames, kindSchema, modeHelp, policySchema } from "../kinds";
import styles from "../policies.module.css";
import type { Mode } from "../types";
import { ClassList } from "./ClassList";
import { LabelsInput } from "./LabelsInput";
import { Matches } from "./Matches";
import { type Draft, readSelector, withKind } from "./policyDraft";

type Props = {
  draft: Draft;
  /** Error messages of invalid fields, by path. */
  wrong: Errors;
  /** Versions of a policy have the same kind. */
  kindIsFixed?: boolean;
  onChange: (draft: Draft) => void;
};

/** Fields that have a place of their own in the form. */
const DEVICES = ["netdevs", "drivers"];
const NODES = ["labels", "hostnames"];
const PLACED = ["name", "rank", "mode", "spec", "guardrails"];

/** The form of all fields of a policy's version. */
export function PolicyForm({ draft, wrong, kindIsFixed = false, onChange }: Props) {
  const form: FormProps = {
    values: draft.values,
    errors: wrong,
    onChange: (path, value) => onChange({ ...draft, values: { ...draft.values, [path]: value } }),
    widgets: {
      "service-classes": (schema, path) => (
        <ClassList
          key={path}
          schema={schema}
          list={draft.classes}
          wrong={wrong}
          path={path}
          onChange={(classes) => onChange({ ...draft, classes })}
        />
      ),
      labels: (schema, path) => (
        <LabelsInput
          key={path}
          schema={schema}
          value={draft.values[path] ?? ""}
          error={wrong[path]}
          onChange={(value) => form.onChange(path, value)}
        />
      ),
      "proof-metric": (schema, path) => (
        <PrimaryMetric
          key={path}
          schema={schema}
          value={draft.values[path] ?? ""}
          error={wrong[path]}
          onChange={(value) => form.onChange(path, value)}
        />
      ),
    },
  };
  const input = (path: string) => (
    <SchemaInput
      schema={policySchema(path)}
      value={draft.values[path] ?? ""}
      error={wrong[path]}
      onChange={(value) => form.onChange(path, value)}
    />
  );
  const groups = fieldsOf(policySchema()).filter(
    ([name, schema]) => !PLACED.includes(name) && inputOf(schema) === "group" && schema.group !== "advanced",
  );
  const elsewhere = [...PLACED, ...groups.map(([name]) => name)];
  const fieldsIn = (name: string) => <SchemaFields schema={policySchema(name)} path={name} {...form} />;
  const mode = draft.values.mode as Mode;
  return (
    <>
      <Part step={1} title="What it does">
        {input("name")}
        <NativeSelect
          label="Kind"
          description={kindSchema(draft.kind).description}
          value={draft.kind}
          disabled={kindIsFixed}
          data={kindNames().map((value) => ({ value, label: kindLabel(value) }))}
          onChange={(event) => onChange(withKind(draft, event.currentTarget.value as Draft["kind"]))}
        />
        <Input.Wrapper
          size="xs"
          label="Mode"
          labelElement="div"
          description={modeHelp(mode)}
          descriptionProps={{ mb: 4 }}
        >
          <Segments
            label="Mode"
            value={mode}
            options={optionsOf(policySchema("mode")).map(({ value, label }) => ({
              value: value as Mode,
              label,
              title: modeHelp(value as Mode) ?? "",
            }))}
            onChange={(value) => form.onChange("mode", value)}
          />
        </Input.Wrapper>
        <Presets
          schema={kindSchema(draft.kind)}
          path="spec"
          values={draft.values}
          onChoose={(chosen) => onChange({ ...draft, values: { ...draft.values, ...chosen } })}
        />
        <SchemaFields key={draft.kind} schema={kindSchema(draft.kind)} path="spec" {...form} />
      </Part>
      <Part step={2} title="Where it applies">
        <SchemaFields schema={policySchema("selector")} path="selector" except={DEVICES} {...form} />
        <Matches selector={readSelector(draft)} />
        <Folded title="Devices and scope" wrong={wrong} paths={["scope", ...DEVICES.map((name) => `selector.${name}`)]}>
          <SchemaFields schema={policySchema("selector")} path="selector" except={NODES} {...form} />
          {fieldsIn("scope")}
        </Folded>
      </Part>
      <Part step={3} title="Guardrails and rollout" note={policySchema("guardrails").description}>
        {GUARDRAIL_METRICS.map((metric) => (
          <SchemaInput
            key={metric}
            schema={withoutHelp(guardrailSchema(metric))}
            value={draft.values[`guardrails.${metric}`] ?? ""}
            error={wrong[`guardrails.${metric}`]}
            onChange={(value) => form.onChange(`guardrails.${metric}`, value)}
          />
        ))}
        {groups
          .filter(([name]) => name !== "selector" && name !== "scope")
          .map(([name, schema]) => (
            <Folded key={name} title={schema.title ?? name} wrong={wrong} paths={[name]}>
              {fieldsIn(name)}
            </Folded>
          ))}
        <Folded title="Precedence" wrong={wrong} paths={["rank"]}>
          {input("rank")}
        </Folded>
        <SchemaFields schema={policySchema()} path="" except={elsewhere} {...form} />
      </Part>
    </>
  );
}

type InputProps = { schema: Schema; value: string; error: string | undefined; onChange: (value: string) => void };

/** The schema of a field whose help text is given once, above several of them. */
const withoutHelp = ({ description: _, ...schema }: Schema): Schema => schema;

/** The choice of a metric that nodes measure, or of a declared application metric. */
function PrimaryMetric({ schema, value, error, onChange }: InputProps) {
  const declared = useQuery(applicationMetricsQuery).data ?? [];
  const labels = {
    ...schema.enum_labels,
    ...Object.fromEntries(declared.map(({ name, label }) => [appMetric(name), `${label} (${appMetric(name)})`])),
  };
  const options = { ...(value === "" ? {} : { [value]: value }), ...labels };
  return (
    <NativeSelect
      label={labelOf(schema)}
      description={schema.description}
      error={error}
      value={value}
      data={Object.entries(options).map(([name, label]) => ({ value: name, label }))}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}

type PartProps = { step: number; title: string; note?: string | undefined; children: ReactNode };

function Part({ step, title, note, children }: PartProps) {
  return (
    <section className={`card ${styles.part}`} aria-label={title}>
      <h2>
        {step}. {title} <small>{note}</small>
      </h2>
      <div className={`body ${styles.fields} ${styles.dense}`}>{children}</div>
    </section>
  );
}

type FoldedProps = { title: string; paths: string[]; wrong: Errors; children: ReactNode };

/** Fields that few policies change. */
function Folded({ title, paths, wrong, children }: FoldedProps) {
  const isWrong = Object.keys(wrong).some((at) => paths.some((path) => at === path || at.startsWith(`${path}.`)));
  return (
    <Fold summary={title} isWrong={isWrong}>
      <section className={`${styles.fields} ${styles.dense}`} aria-label={title}>
        {children}
      </section>
    </Fold>
  );
}
