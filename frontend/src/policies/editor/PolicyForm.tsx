import { Input, NativeSelect } from "@mantine/core";
import type { ReactNode } from "react";
import { Segments } from "../../components/Segments";
import { Presets } from "../../forms/Presets";
import { type FormProps, SchemaFields, SchemaInput } from "../../forms/SchemaField";
import { fieldsOf, inputOf, optionsOf } from "../../forms/schema";
import type { Errors } from "../../forms/values";
import { GUARDRAIL_METRICS } from "../../lib/metrics";
import { guardrailSchema, kindLabel, kindNames, kindSchema, modeHelp, policySchema } from "../kinds";
import styles from "../policies.module.css";
import type { Mode } from "../types";
import { ClassList } from "./ClassList";
import { type Draft, withKind } from "./policyDraft";

type Props = {
  draft: Draft;
  /** Error messages of invalid fields, by path. */
  wrong: Errors;
  /** Versions of a policy have the same kind. */
  kindIsFixed?: boolean;
  onChange: (draft: Draft) => void;
};

/** Fields that have a place of their own in the form. */
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
  const mode = draft.values.mode as Mode;
  return (
    <>
      <Part title="General">
        {input("name")}
        {input("rank")}
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
        <SchemaFields schema={policySchema()} path="" except={elsewhere} {...form} />
      </Part>
      <Part title={kindLabel(draft.kind)}>
        <Presets
          schema={kindSchema(draft.kind)}
          path="spec"
          values={draft.values}
          onChoose={(chosen) => onChange({ ...draft, values: { ...draft.values, ...chosen } })}
        />
        <SchemaFields key={draft.kind} schema={kindSchema(draft.kind)} path="spec" {...form} />
      </Part>
      {groups.map(([name, schema]) => (
        <Part key={name} title={schema.title ?? name} note={schema.description}>
          <SchemaFields schema={schema} path={name} {...form} />
        </Part>
      ))}
      <Part title="Guardrails" note={policySchema("guardrails").description}>
        {GUARDRAIL_METRICS.map((metric) => (
          <SchemaInput
            key={metric}
            schema={guardrailSchema(metric)}
            value={draft.values[`guardrails.${metric}`] ?? ""}
            error={wrong[`guardrails.${metric}`]}
            onChange={(value) => form.onChange(`guardrails.${metric}`, value)}
          />
        ))}
      </Part>
    </>
  );
}

function Part({ title, note, children }: { title: string; note?: string | undefined; children: ReactNode }) {
  return (
    <section className="card" aria-label={title}>
      <h2>
        {title} <small>{note}</small>
      </h2>
      <div className={`body ${styles.fields}`}>{children}</div>
    </section>
  );
}
