import { TextInput } from "@mantine/core";
import { useId } from "react";
import { tunables } from "../../lib/settingKeys";
import type { KnownSetting } from "./knownSettings";

/** Unit and help text of a network device's setting. */
export function paramOf(key: string): { unit: string | null; help: string } | undefined {
  return tunables().find(({ name, group }) => group !== null && key.endsWith(`/${name}`));
}

type KeyProps = {
  label: string;
  value: string;
  known: KnownSetting[];
  error?: string | undefined;
  onChange: (key: string) => void;
};

/** Input of a setting's key, with the node's settings as suggestions. */
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
