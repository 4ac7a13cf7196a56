import { Checkbox, TextInput } from "@mantine/core";
import { tunableName } from "../../lib/settingKeys";
import styles from "./coalescing.module.css";
import { DriverResponses } from "./DriverResponses";
import type { DriverResponse, Param } from "./nicParams";

type Props = {
  name: string;
  param: Param;
  current: string;
  value: string;
  /** The driver's maximum, if it reports one. */
  max: string | number | undefined;
  error: string | undefined;
  responses: DriverResponse[];
  onChange: (value: string) => void;
};

/** The field of one NIC parameter, a number or on/off, with the driver's responses to earlier values. */
export function ParamField({ name, param: { unit, help }, current, value, max, error, responses, onChange }: Props) {
  const changed = value.trim() !== current;
  const notes = [unit, changed ? `now ${current}` : null, max === undefined ? null : `max ${max}`];
  return (
    <div className={styles.param} data-changed={changed || undefined}>
      <label htmlFor={`param-${name}`} title={help}>
        {tunableName(name)} <small className="muted">{notes.filter(Boolean).join(", ")}</small>
      </label>
      {unit === null ? (
        <Checkbox
          id={`param-${name}`}
          size="xs"
          label={value}
          checked={value === "on"}
          onChange={(event) => onChange(event.currentTarget.checked ? "on" : "off")}
        />
      ) : (
        <TextInput
          id={`param-${name}`}
          inputMode="numeric"
          autoComplete="off"
          value={value}
          error={error}
          classNames={{ input: "mono" }}
          onChange={(event) => onChange(event.currentTarget.value)}
        />
      )}
      <DriverResponses responses={responses} name={name} typed={changed ? value.trim() : null} />
    </div>
  );
}
