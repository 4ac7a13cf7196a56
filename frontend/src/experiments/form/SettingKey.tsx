import { TextInput } from "@mantine/core";
import { useId } from "react";
import { GROUPS } from "../../node/coalescing/nicParams";
import type { KnownSetting } from "./knownSettings";

/** The unit and the help of a setting's number, where it is one of a network device. */
export function paramOf(key: string): { unit: string | null; help: string } | undefined {
  for (const { params } of GROUPS)
    for (const [name, param] of Object.entries(params)) if (key.endsWith(`/${name}`)) return param;
  return undefined;
}

type KeyProps = {
  label: string;
  value: string;
  known: KnownSetting[];
  error?: string | undefined;
  onChange: (key: string) => void;
};

/** A setting by its key; those of the node are offered with their names and values. */
export function SettingKey({ label, value, known, error, onChange }: KeyProps) {
  const id = useId();
  const one = known.find(({ key }) => key === value);
  return (
    <>
      <TextInput
        label={label}
        placeholder="netdev/eth0/coalesce/rx-usecs"
        list={id}
        classNames={{ input: "mono" }}
        autoComplete="off"
        spellCheck={false}
        value={value}
        error={error}
        title={one?.label}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
      <datalist id={id}>
        {known.map((setting) => (
          <option key={setting.key} value={setting.key}>
            {setting.label}
          </option>
        ))}
      </datalist>
    </>
  );
}
