import { Checkbox, NativeSelect, Textarea, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { Fragment } from "react";
import { Fold } from "./Fold";
import styles from "./forms.module.css";
import { type Field, fieldsOf, inputOf, labelOf, optionsOf, type Schema } from "./schema";
import type { Errors, Values } from "./values";

type InputProps = {
  schema: Schema;
  /** The label if the schema has no title. */
  name?: string;
  /** The accessible name, if the label alone is ambiguous on the page. */
  ariaLabel?: string;
  value: string;
  error?: string | undefined;
  /** Id of a datalist with suggestions. */
  list?: string;
  onChange: (value: string) => void;
};

/** The input of one field: number with unit, select, checkboxes, list of words or pairs, JSON, or text. */
export function SchemaInput({ schema, name = "", ariaLabel, value, error, list, onChange }: InputProps) {
  const input = inputOf(schema);
  const label = labelOf(schema, name);
  const { description, placeholder, enum_descriptions } = schema;
  if (input === "check")
    return (
      <Checkbox
        size="xs"
        label={label}
        description={description}
        checked={value === "true"}
        error={error}
        onChange={(event) => onChange(event.currentTarget.checked ? "true" : "")}
      />
    );
  if (input === "choices")
    return (
      <Checkbox.Group
        className={styles.choices}
        size="xs"
        label={label}
        description={description}
        error={error}
        value={value.split(" ").filter(Boolean)}
        onChange={(chosen) => onChange(chosen.join(" "))}
      >
        <div className={styles.options}>
          {optionsOf(schema).map((option) => (
            <Checkbox key={option.value} size="xs" value={option.value} label={option.label} />
          ))}
        </div>
      </Checkbox.Group>
    );
  const text = {
    label,
    description,
    placeholder,
    error,
    value,
    autoComplete: "off",
    spellCheck: false,
    "aria-label": ariaLabel,
  };
  if (input === "choice")
    return (
      <NativeSelect
        label={label}
        description={enum_descriptions?.[value] ?? description}
        error={error}
        value={value}
        data={optionsOf(schema)}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    );
  if (input === "json")
    return <Textarea autosize {...text} onChange={(event) => onChange(event.currentTarget.value)} />;
  return (
    <TextInput
      {...text}
      list={list}
      inputMode={input === "number" ? "decimal" : "text"}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}

export type FormProps = {
  values: Values;
  errors: Errors;
  onChange: (path: string, value: string) => void;
  /** Custom editors, by the `format` of the fields that they edit. */
  widgets?: Record<string, (schema: Schema, path: string) => ReactNode>;
};

type FieldsProps = FormProps & { schema: Schema; path: string; except?: readonly string[] };

/** The inputs of an object's fields, generated from its schema; advanced fields are collapsed. */
export function SchemaFields({ schema, path, except = [], ...form }: FieldsProps) {
  const fields = fieldsOf(schema).filter(([name]) => !except.includes(name));
  const advanced = fields.filter(([, { group }]) => group === "advanced");
  const isWrong = advanced.some(([name]) => Object.keys(form.errors).some((at) => isWithin(at, pathOf(path, name))));
  const show = (field: Field) => <SchemaField key={`${path}.${field[0]}`} field={field} path={path} {...form} />;
  return (
    <>
      {fields.filter((field) => !advanced.includes(field)).map(show)}
      {advanced.length > 0 && (
        <Fold summary="Advanced" isWrong={isWrong}>
          <div className={styles.advanced}>{advanced.map(show)}</div>
        </Fold>
      )}
    </>
  );
}

const pathOf = (path: string, name: string) => (path === "" ? name : `${path}.${name}`);
const isWithin = (at: string, path: string) => at === path || at.startsWith(`${path}.`);

function SchemaField({ field: [name, schema], path, ...form }: FormProps & { field: Field; path: string }) {
  const at = pathOf(path, name);
  const widget = form.widgets?.[schema.format ?? ""];
  if (widget !== undefined) return <Fragment>{widget(schema, at)}</Fragment>;
  if (inputOf(schema) === "group") return <SchemaFields schema={schema} path={at} {...form} />;
  return (
    <SchemaInput
      schema={schema}
      name={name}
      value={form.values[at] ?? ""}
      error={form.errors[at]}
      onChange={(value) => form.onChange(at, value)}
    />
  );
}
