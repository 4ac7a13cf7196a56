import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useState } from "react";
import { SchemaInput } from "../../forms/SchemaField";
import { fieldAt, fieldsOf, labelOf } from "../../forms/schema";
import { valueText } from "../../forms/values";
import { isCpuListSetting, settingName } from "../../lib/settingKeys";
import { levelSchema, workloadSchema } from "../experimentSchema";
import experimentsStyles from "../experiments.module.css";
import type { WorkloadType } from "../types";
import styles from "./form.module.css";
import type { KnownSetting } from "./knownSettings";
import { LevelPolicy } from "./LevelPolicy";
import { paramOf, SettingKey } from "./SettingKey";
import type { LevelDraft } from "./specDraft";

const NO_CHANGE = "the node as it is";

export type SharedProps = {
  type: WorkloadType;
  known: KnownSetting[];
  /** The error message of the field at a path with this text; undefined for a valid one. */
  at: (path: string, text: string) => string | undefined;
};

/** A level's settings, policy and workload fields in one line. */
function levelText({ settings, policy, irqbalance, irqbalanceCpus, workload }: LevelDraft): string {
  const parts = [
    ...settings.filter(({ key }) => key !== "").map(({ key, value }) => `${settingName(key)} ${value}`),
    ...(policy === null
      ? []
      : [policy.id === 0 ? "a policy" : `policy ${policy.id} v${policy.version}, ${policy.mode}`]),
    ...(irqbalance ? [irqbalanceCpus === "" ? "irqbalance runs" : `irqbalance on CPU ${irqbalanceCpus} only`] : []),
    ...Object.entries(workload).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`),
  ];
  return parts.join(", ") || NO_CHANGE;
}

type LevelProps = SharedProps & {
  level: LevelDraft;
  place: number;
  path: string;
  sweep: boolean;
  onChange: (level: LevelDraft) => void;
  onRemove: (() => void) | null;
};

/** One level of a factor: its settings, policy and workload fields, collapsed to one line. */
export function LevelEditor({ level, place, path, sweep, type, known, at, onChange, onRemove }: LevelProps) {
  const { properties: fields = {} } = workloadSchema(type);
  const called = level.name || (place === 0 ? "the baseline" : `level ${place + 1}`);
  // Open initially if something has to be filled in; afterwards the user opens and closes it.
  const [wasOpen] = useState(level.name === "" || (place > 0 && levelText(level) === NO_CHANGE));
  return (
    <li className={styles.level} aria-label={called}>
      <details open={wasOpen}>
        <summary>
          <b>{place === 0 ? "Baseline" : `Level ${place + 1}`}</b> {level.name}{" "}
          <span className="muted">{levelText(level)}</span>
        </summary>
        <div className={experimentsStyles.row}>
          <SchemaInput
            schema={fieldAt(levelSchema(), "name")}
            value={level.name}
            error={at(`${path}.name`, level.name)}
            onChange={(text) => onChange({ ...level, name: text })}
          />
          {sweep && (
            <SchemaInput
              schema={fieldAt(levelSchema(), "value")}
              value={level.value}
              error={at(`${path}.value`, level.value)}
              onChange={(value) => onChange({ ...level, value })}
            />
          )}
          <span className="grow" />
          {onRemove !== null && (
            <Button aria-label={`Remove ${called}`} onClick={onRemove}>
              Remove
            </Button>
          )}
        </div>
        {level.settings.map((setting, index) => (
          <SettingRow
            // biome-ignore lint/suspicious/noArrayIndexKey: a setting has no other name while its key is typed
            key={index}
            setting={setting}
            path={`${path}.settings.${index}`}
            known={known}
            at={at}
            onChange={(next) =>
              onChange({ ...level, settings: level.settings.map((one, other) => (other === index ? next : one)) })
            }
            onRemove={() => onChange({ ...level, settings: level.settings.filter((_, other) => other !== index) })}
          />
        ))}
        {level.policy !== null && (
          <LevelPolicy
            policy={level.policy}
            onChange={(policy) => onChange({ ...level, policy })}
            error={at(`${path}.policy`, "x")}
          />
        )}
        {Object.entries(level.workload).map(([name, value]) => {
          const field = fields[name];
          if (field === undefined) return null;
          return (
            <div key={name} className={experimentsStyles.row}>
              <SchemaInput
                schema={field}
                name={name}
                value={value}
                error={at(`${path}.workload.${name}`, value)}
                onChange={(next) => onChange({ ...level, workload: { ...level.workload, [name]: next } })}
              />
              <Button
                aria-label={`Remove ${labelOf(field, name)}`}
                onClick={() => {
                  const { [name]: _, ...others } = level.workload;
                  onChange({ ...level, workload: others });
                }}
              >
                ×
              </Button>
            </div>
          );
        })}
        {level.irqbalance && (
          <div className={experimentsStyles.row}>
            <SchemaInput
              schema={fieldAt(levelSchema(), "irqbalance_cpus")}
              value={level.irqbalanceCpus}
              error={at(`${path}.irqbalance_cpus`, level.irqbalanceCpus)}
              onChange={(irqbalanceCpus) => onChange({ ...level, irqbalanceCpus })}
            />
          </div>
        )}
        <AddToLevel level={level} type={type} called={called} onChange={onChange} />
      </details>
    </li>
  );
}

type SettingRowProps = Pick<SharedProps, "known" | "at"> & {
  setting: LevelDraft["settings"][number];
  path: string;
  onChange: (setting: LevelDraft["settings"][number]) => void;
  onRemove: () => void;
};

/** One setting of a level: its key and its value, with the present value as a placeholder. */
function SettingRow({ setting, path, known, at, onChange, onRemove }: SettingRowProps) {
  const param = paramOf(setting.key);
  const current = known.find(({ key }) => key === setting.key)?.value;
  return (
    <div className={experimentsStyles.row}>
      <SettingKey
        label="Setting"
        value={setting.key}
        known={known}
        error={at(`${path}.key`, setting.key)}
        onChange={(key) => onChange({ ...setting, key })}
      />
      <TextInput
        label={isCpuListSetting(setting.key) ? "CPUs" : param?.unit ? `Value, ${param.unit}` : "Value"}
        placeholder={current === undefined || current === null ? undefined : `now ${current}`}
        title={param?.help}
        classNames={{ input: "mono" }}
        value={setting.value}
        error={at(`${path}.value`, setting.value)}
        onChange={(event) => onChange({ ...setting, value: event.currentTarget.value })}
      />
      <Button aria-label={`Remove ${setting.key || "this setting"}`} onClick={onRemove}>
        ×
      </Button>
    </div>
  );
}

type AddProps = Pick<LevelProps, "level" | "type" | "onChange"> & { called: string };

/** Buttons that add a setting, the policy or a workload field to a level, and irqbalance. */
function AddToLevel({ level, type, called, onChange }: AddProps) {
  const free = fieldsOf(workloadSchema(type)).filter(([name]) => !(name in level.workload));
  return (
    <div className={styles.adds}>
      <Button onClick={() => onChange({ ...level, settings: [...level.settings, { key: "", value: "" }] })}>
        + setting
      </Button>
      {level.policy === null && (
        <Button onClick={() => onChange({ ...level, policy: { id: 0, version: 1, mode: "enforce" } })}>+ policy</Button>
      )}
      {free.length > 0 && (
        <NativeSelect
          aria-label={`Workload field of ${called}`}
          value=""
          data={[
            { value: "", label: "+ workload field" },
            ...free.map(([name, field]) => ({ value: name, label: labelOf(field, name) })),
          ]}
          onChange={(event) => {
            const name = event.currentTarget.value;
            const [, field] = free.find(([other]) => other === name) ?? [];
            if (field !== undefined) onChange({ ...level, workload: { ...level.workload, [name]: valueText(field) } });
          }}
        />
      )}
      <Checkbox
        size="xs"
        label={fieldAt(levelSchema(), "irqbalance").title}
        checked={level.irqbalance}
        onChange={(event) => onChange({ ...level, irqbalance: event.currentTarget.checked })}
      />
    </div>
  );
}
