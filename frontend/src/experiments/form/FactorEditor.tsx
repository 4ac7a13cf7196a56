import { Button, Checkbox, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useId, useState } from "react";
import { settingName } from "../../lib/settingKeys";
import { GROUPS } from "../../node/coalescing/nicParams";
import { MODES } from "../../policies/kinds";
import { policiesQuery } from "../../policies/queries";
import type { Mode } from "../../policies/types";
import styles from "../experiments.module.css";
import type { WorkloadType } from "../types";
import type { Known } from "./knownSettings";
import { WorkloadField } from "./SpecForm";
import { type FactorDraft, type LevelDraft, levelsOf, MOST_LEVELS, newLevel, takesCpus } from "./specDraft";
import { WORKLOADS } from "./workloads";

type Shared = {
  type: WorkloadType;
  known: Known[];
  /** The message at a path whose field has this text. */
  at: (path: string, text: string) => string | undefined;
};
type Props = Shared & {
  factor: FactorDraft;
  path: string;
  sweep: boolean;
  onChange: (factor: FactorDraft) => void;
  onRemove: (() => void) | null;
};

/** What is varied: its levels, of which the first is the baseline. */
export function FactorEditor({ factor, path, sweep, onChange, onRemove, ...shared }: Props) {
  const set = (levels: LevelDraft[]) => onChange({ ...factor, levels });
  return (
    <section className="card" aria-label={`What is varied: ${factor.name || "unnamed"}`}>
      <h2>
        What is varied <small>the first level is the baseline</small>
        <span className="grow" />
        {onRemove !== null && <Button onClick={onRemove}>Leave this out</Button>}
      </h2>
      <div className={`body ${styles.factor}`}>
        <div className={styles.row}>
          <TextInput
            label="Called"
            value={factor.name}
            error={shared.at(`${path}.name`, factor.name)}
            onChange={(event) => onChange({ ...factor, name: event.currentTarget.value })}
          />
          {sweep && (
            <TextInput
              label="Unit of its values"
              placeholder="none"
              value={factor.unit}
              maxLength={20}
              onChange={(event) => onChange({ ...factor, unit: event.currentTarget.value })}
            />
          )}
        </div>
        {sweep && (
          <ValuesOf known={shared.known} onMake={(name, unit, levels) => onChange({ ...factor, name, unit, levels })} />
        )}
        <ol className={styles.levels}>
          {factor.levels.map((level, place) => (
            <LevelEditor
              key={level.id}
              level={level}
              place={place}
              path={`${path}.levels.${place}`}
              sweep={sweep}
              {...shared}
              onChange={(next) => set(factor.levels.map((one) => (one.id === level.id ? next : one)))}
              onRemove={factor.levels.length > 2 ? () => set(factor.levels.filter((one) => one.id !== level.id)) : null}
            />
          ))}
        </ol>
        {sweep && factor.levels.length < MOST_LEVELS && (
          <div>
            <Button onClick={() => set([...factor.levels, newLevel()])}>Add a level</Button>
          </div>
        )}
      </div>
    </section>
  );
}

/** The unit and the help of a setting's number, where it is one of a network device. */
function paramOf(key: string): { unit: string | null; help: string } | undefined {
  for (const { params } of GROUPS)
    for (const [name, param] of Object.entries(params)) if (key.endsWith(`/${name}`)) return param;
  return undefined;
}

type ValuesProps = { known: Known[]; onMake: (name: string, unit: string, levels: LevelDraft[]) => void };

/** Makes the levels of a sweep from one setting and a list of values. */
function ValuesOf({ known, onMake }: ValuesProps) {
  const [key, setKey] = useState("");
  const [values, setValues] = useState("");
  const levels = levelsOf(key.trim(), values);
  return (
    <div className={styles.row}>
      <SettingKey label="Levels from the values of a setting" value={key} known={known} onChange={setKey} />
      <TextInput
        label="Values"
        placeholder="0 18 54 90"
        value={values}
        autoComplete="off"
        onChange={(event) => setValues(event.currentTarget.value)}
      />
      <Button
        disabled={key.trim() === "" || levels.length < 2}
        onClick={() => onMake(key.trim().split("/").at(-1) ?? key, paramOf(key.trim())?.unit ?? "", levels)}
      >
        Make {levels.length < 2 ? "" : levels.length} levels
      </Button>
    </div>
  );
}

type KeyProps = {
  label: string;
  value: string;
  known: Known[];
  error?: string | undefined;
  onChange: (key: string) => void;
};

/** A setting by its key; those of the node are offered with their names and values. */
function SettingKey({ label, value, known, error, onChange }: KeyProps) {
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

const PLAIN = "the node as it is";

/** What a level is, in a line. */
function levelText({ settings, policy, irqbalance, workload }: LevelDraft): string {
  const parts = [
    ...settings.filter(({ key }) => key !== "").map(({ key, value }) => `${settingName(key)} ${value}`),
    ...(policy === null
      ? []
      : [policy.id === 0 ? "a policy" : `policy ${policy.id} v${policy.version}, ${policy.mode}`]),
    ...(irqbalance ? ["irqbalance runs"] : []),
    ...Object.entries(workload).map(([name, value]) => `${name.replaceAll("_", " ")} ${value}`),
  ];
  return parts.join(", ") || PLAIN;
}

type LevelProps = Shared & {
  level: LevelDraft;
  place: number;
  path: string;
  sweep: boolean;
  onChange: (level: LevelDraft) => void;
  onRemove: (() => void) | null;
};

function LevelEditor({ level, place, path, sweep, type, known, at, onChange, onRemove }: LevelProps) {
  const { fields } = WORKLOADS[type];
  const free = Object.keys(fields).filter((name) => !(name in level.workload));
  const called = level.name || (place === 0 ? "the baseline" : `level ${place + 1}`);
  // folded where there is nothing left to type when it comes up; after that as its reader has it
  const [wasOpen] = useState(level.name === "" || (place > 0 && levelText(level) === PLAIN));
  return (
    <li className={styles.level} aria-label={called}>
      <details open={wasOpen}>
        <summary>
          <b>{place === 0 ? "Baseline" : `Level ${place + 1}`}</b> {level.name}{" "}
          <span className="muted">{levelText(level)}</span>
        </summary>
        <div className={styles.row}>
          <TextInput
            label="Name of the level"
            value={level.name}
            error={at(`${path}.name`, level.name)}
            onChange={(event) => onChange({ ...level, name: event.currentTarget.value })}
          />
          {sweep && (
            <TextInput
              label="Value on the axis"
              placeholder="none"
              inputMode="decimal"
              value={level.value}
              error={at(`${path}.value`, level.value)}
              onChange={(event) => onChange({ ...level, value: event.currentTarget.value })}
            />
          )}
          <span className="grow" />
          {onRemove !== null && (
            <Button aria-label={`Leave out ${called}`} onClick={onRemove}>
              Leave out
            </Button>
          )}
        </div>
        {level.settings.map((setting, index) => {
          const is = (change: Partial<typeof setting>) =>
            onChange({
              ...level,
              settings: level.settings.map((one, other) => (other === index ? { ...one, ...change } : one)),
            });
          const param = paramOf(setting.key);
          const stands = known.find(({ key }) => key === setting.key)?.value;
          return (
            // biome-ignore lint/suspicious/noArrayIndexKey: a setting has no other name while its key is typed
            <div key={index} className={styles.row}>
              <SettingKey
                label="Setting"
                value={setting.key}
                known={known}
                error={at(`${path}.settings.${index}.key`, setting.key)}
                onChange={(key) => is({ key })}
              />
              <TextInput
                label={takesCpus(setting.key) ? "CPUs" : param?.unit ? `Value, ${param.unit}` : "Value"}
                placeholder={stands === undefined || stands === null ? undefined : `now ${stands}`}
                title={param?.help}
                classNames={{ input: "mono" }}
                value={setting.value}
                error={at(`${path}.settings.${index}.value`, setting.value)}
                onChange={(event) => is({ value: event.currentTarget.value })}
              />
              <Button
                aria-label={`Leave out ${setting.key || "this setting"}`}
                onClick={() => onChange({ ...level, settings: level.settings.filter((_, other) => other !== index) })}
              >
                ×
              </Button>
            </div>
          );
        })}
        {level.policy !== null && (
          <PolicyOf
            policy={level.policy}
            onChange={(policy) => onChange({ ...level, policy })}
            error={at(`${path}.policy`, "x")}
          />
        )}
        {Object.entries(level.workload).map(([name, value]) => {
          const field = fields[name];
          if (field === undefined) return null;
          return (
            <div key={name} className={styles.row}>
              <WorkloadField
                field={field}
                value={value}
                error={at(`${path}.workload.${name}`, value)}
                onChange={(next) => onChange({ ...level, workload: { ...level.workload, [name]: next } })}
              />
              <Button
                aria-label={`Leave out ${field.label}`}
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
        <div className={styles.adds}>
          <Button onClick={() => onChange({ ...level, settings: [...level.settings, { key: "", value: "" }] })}>
            + setting
          </Button>
          {level.policy === null && (
            <Button onClick={() => onChange({ ...level, policy: { id: 0, version: 1, mode: "enforce" } })}>
              + policy
            </Button>
          )}
          {free.length > 0 && (
            <NativeSelect
              aria-label={`Something of the load that differs, ${called}`}
              value=""
              data={[
                { value: "", label: "+ of the load" },
                ...free.map((name) => ({ value: name, label: fields[name]?.label ?? name })),
              ]}
              onChange={(event) => {
                const name = event.currentTarget.value;
                const field = fields[name];
                if (field !== undefined) onChange({ ...level, workload: { ...level.workload, [name]: field.initial } });
              }}
            />
          )}
          <Checkbox
            size="xs"
            label="irqbalance runs"
            checked={level.irqbalance}
            onChange={(event) => onChange({ ...level, irqbalance: event.currentTarget.checked })}
          />
        </div>
      </details>
    </li>
  );
}

type PolicyProps = {
  policy: NonNullable<LevelDraft["policy"]>;
  error: string | undefined;
  onChange: (policy: LevelDraft["policy"]) => void;
};

/** A kept version of a policy, in force for the time of a run. */
function PolicyOf({ policy, error, onChange }: PolicyProps) {
  const policies = useQuery(policiesQuery).data ?? [];
  const known = policies.find(({ id }) => id === policy.id);
  return (
    <div className={styles.row}>
      <NativeSelect
        label="Policy"
        value={policy.id || ""}
        error={error}
        data={[
          { value: "", label: policies.length === 0 ? "there is none yet" : "choose one" },
          ...policies.map(({ id, name }) => ({ value: String(id), label: name })),
        ]}
        onChange={(event) => {
          const id = Number(event.currentTarget.value);
          onChange({ ...policy, id, version: policies.find((one) => one.id === id)?.version ?? 1 });
        }}
      />
      <NativeSelect
        label="Version"
        value={String(policy.version)}
        data={Array.from({ length: Math.max(known?.versions ?? 1, policy.version) }, (_, index) => String(index + 1))}
        onChange={(event) => onChange({ ...policy, version: Number(event.currentTarget.value) })}
      />
      <NativeSelect
        label="Mode"
        title={MODES[policy.mode].about}
        value={policy.mode}
        data={Object.entries(MODES).map(([value, { label }]) => ({ value, label }))}
        onChange={(event) => onChange({ ...policy, mode: event.currentTarget.value as Mode })}
      />
      <Button aria-label="Leave out the policy" onClick={() => onChange(null)}>
        ×
      </Button>
    </div>
  );
}
