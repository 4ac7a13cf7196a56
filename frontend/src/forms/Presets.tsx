import { Input } from "@mantine/core";
import { Segments } from "../components/Segments";
import { fieldAt, type Preset, type Schema } from "./schema";
import { type Values, valueText } from "./values";

type Props = {
  /** The schema of the object that has the presets. */
  schema: Schema;
  path: string;
  values: Values;
  /** Called with the texts of the fields that a preset fills, by path. */
  onChoose: (values: Values) => void;
};

/** The texts of a preset's fields, by path. */
export function presetTexts(schema: Schema, path: string, preset: Preset): Record<string, string> {
  return Object.fromEntries(
    Object.entries(preset.values).map(([name, value]) => [`${path}.${name}`, valueText(fieldAt(schema, name), value)]),
  );
}

/** A button per preset of an object; the one whose values the fields have is pressed. */
export function Presets({ schema, path, values, onChoose }: Props) {
  const presets = schema.presets ?? [];
  if (presets.length === 0) return null;
  const chosen = presets.find((preset) =>
    Object.entries(presetTexts(schema, path, preset)).every(([at, text]) => values[at]?.trim() === text),
  );
  const choose = (label: string) => {
    const preset = presets.find((one) => one.label === label);
    if (preset !== undefined) onChoose(presetTexts(schema, path, preset));
  };
  return (
    <Input.Wrapper
      size="xs"
      label="Presets"
      labelElement="div"
      description={chosen?.summary ?? "The bounds below are your own."}
      descriptionProps={{ mb: 4 }}
      style={{ gridColumn: "1 / -1" }}
    >
      <Segments
        label="Presets"
        value={chosen?.label ?? null}
        options={presets.map(({ label, summary }) => ({ value: label, label, title: summary }))}
        onChange={choose}
      />
    </Input.Wrapper>
  );
}
