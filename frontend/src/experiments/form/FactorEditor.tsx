import { Button, TextInput } from "@mantine/core";
import { useState } from "react";
import { SchemaInput } from "../../forms/SchemaField";
import { fieldAt } from "../../forms/schema";
import { factorSchema, maxLevels } from "../experimentSchema";
import experimentsStyles from "../experiments.module.css";
import type { Kind } from "../types";
import styles from "./form.module.css";
import type { KnownSetting } from "./knownSettings";
import { LevelEditor, type SharedProps } from "./LevelEditor";
import { paramOf, SettingKey } from "./SettingKey";
import { type FactorDraft, type LevelDraft, levelsFromValues, newLevel } from "./specDraft";

type Props = SharedProps & {
  factor: FactorDraft;
  path: string;
  kind: Kind;
  onChange: (factor: FactorDraft) => void;
  onRemove: (() => void) | null;
};

/** A factor with its levels, of which the first is the baseline. */
export function FactorEditor({ factor, path, kind, onChange, onRemove, ...shared }: Props) {
  const sweep = kind !== "ab";
  const set = (levels: LevelDraft[]) => onChange({ ...factor, levels });
  return (
    <section className="card" aria-label={`Factor: ${factor.name || "unnamed"}`}>
      <h2>
        Factor <small>the first level is the baseline</small>
        <span className="grow" />
        {onRemove !== null && <Button onClick={onRemove}>Remove factor</Button>}
      </h2>
      <div className={`body ${styles.factor}`}>
        <div className={experimentsStyles.row}>
          <SchemaInput
            schema={fieldAt(factorSchema(), "name")}
            value={factor.name}
            error={shared.at(`${path}.name`, factor.name)}
            onChange={(name) => onChange({ ...factor, name })}
          />
          {sweep && (
            <SchemaInput
              schema={fieldAt(factorSchema(), "unit")}
              value={factor.unit}
              error={shared.at(`${path}.unit`, factor.unit)}
              onChange={(unit) => onChange({ ...factor, unit })}
            />
          )}
        </div>
        {sweep && (
          <LevelsFromValues
            known={shared.known}
            first={kind === "tune"}
            onMake={(name, unit, levels) => onChange({ ...factor, name, unit, levels })}
          />
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
        {sweep && factor.levels.length < maxLevels() && (
          <div>
            <Button onClick={() => set([...factor.levels, newLevel()])}>Add a level</Button>
          </div>
        )}
      </div>
    </section>
  );
}

type ValuesProps = {
  known: KnownSetting[];
  /** Whether the first level is the node as it is. */
  first: boolean;
  onMake: (name: string, unit: string, levels: LevelDraft[]) => void;
};

/** Generates levels from one setting and a list of values. */
function LevelsFromValues({ known, first, onMake }: ValuesProps) {
  const [key, setKey] = useState("");
  const [values, setValues] = useState("");
  const present = known.find((setting) => setting.key === key.trim())?.value ?? null;
  const levels = levelsFromValues(key.trim(), values, first ? present : undefined);
  return (
    <div className={experimentsStyles.row}>
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
        Generate {levels.length < 2 ? "" : levels.length} levels
      </Button>
    </div>
  );
}
