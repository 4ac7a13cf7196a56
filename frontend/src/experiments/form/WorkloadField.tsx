import { Checkbox, NativeSelect, TextInput } from "@mantine/core";
import type { Field } from "./workloads";

type FieldProps = {
  field: Field;
  value: string;
  error?: string | undefined;
  onChange: (value: string) => void;
};

/** One field of a workload. */
export function WorkloadField({ field: { of, label, unit, help }, value, error, onChange }: FieldProps) {
  if (of.input === "check")
    return (
      <Checkbox
        size="xs"
        label={label}
        checked={value === "true"}
        onChange={(event) => onChange(event.currentTarget.checked ? "true" : "")}
      />
    );
  if (of.input === "choice")
    return (
      <NativeSelect
        label={label}
        description={help}
        value={value}
        data={Object.entries(of.options).map(([option, words]) => ({ value: option, label: words }))}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    );
  return (
    <TextInput
      label={unit ? `${label}, ${unit}` : label}
      description={help}
      placeholder={of.input === "cpus" ? "any" : undefined}
      inputMode={of.input === "number" ? "numeric" : "text"}
      autoComplete="off"
      spellCheck={false}
      value={value}
      error={error}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
