import { TextInput } from "@mantine/core";
import { useState } from "react";
import { labelsText, parseLabels } from "../lib/labels";

type Labels = Record<string, string>;

/**
 * Field for the labels of the nodes of which somebody is operator; empty for all nodes. Its form cannot be sent while the
 * input is invalid.
 *
 * of: the user, where the field has no label.
 */
export function RoleLabels({
  of,
  value,
  onChange,
  disabled = false,
}: {
  of?: string;
  value: Labels;
  onChange: (labels: Labels) => void;
  disabled?: boolean;
}) {
  const [line, setLine] = useState(labelsText(value));
  const labels = parseLabels(line);
  const invalid = typeof labels === "string" ? labels : "";
  return (
    <TextInput
      ref={(input) => input?.setCustomValidity(invalid)}
      label={of === undefined ? "Of nodes with labels" : undefined}
      aria-label={of === undefined ? undefined : `Labels of the nodes of which ${of} is operator`}
      placeholder="all nodes"
      title="Shell patterns, for example role=db rack=r0*"
      autoComplete="off"
      spellCheck={false}
      w={180}
      value={line}
      disabled={disabled}
      error={invalid || undefined}
      onChange={(event) => {
        const text = event.currentTarget.value;
        const parsed = parseLabels(text);
        setLine(text);
        if (typeof parsed !== "string") onChange(parsed);
      }}
    />
  );
}
