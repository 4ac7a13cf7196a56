import { Checkbox, TextInput } from "@mantine/core";
import { tunableName } from "../../lib/settingKeys";
import styles from "./coalescing.module.css";
import { DriverResponses } from "./DriverResponses";
import type { Param, Tried } from "./nicParams";

type Props = {
  name: string;
  param: Param;
  current: string;
  value: string;
  /** The largest value that the driver takes, where it tells one. */
  most: string | number | undefined;
  error: string | undefined;
  tried: Tried[];
  onChange: (value: string) => void;
};

/** One NIC parameter: a number or on/off, with what its driver made of earlier values. */
export function ParamField({ name, param: { unit, help }, current, value, most, error, tried, onChange }: Props) {
  const changed = value.trim() !== current;
  const notes = [unit, changed ? `now ${current}` : null, most === undefined ? null : `at most ${most}`];
  return (
    <div className={styles.param} data-changed={changed || undefined}>
      <label htmlFor={`param-${name}`} title={help}>
        {tunableName(name)} <small className="muted">{notes.filter((note) => note !== null).join(", ")}</small>
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
      <DriverResponses tried={tried} name={name} asked={changed ? value.trim() : null} />
    </div>
  );
}
