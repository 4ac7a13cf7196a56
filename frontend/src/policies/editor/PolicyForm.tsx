import { Checkbox, Input, NativeSelect, TextInput } from "@mantine/core";
import type { ReactNode } from "react";
import { Segments } from "../../components/Segments";
import {
  DAMPINGS,
  type Field,
  fieldsOf,
  KIND_NAMES,
  KINDS,
  METRIC_NAMES,
  METRICS,
  MODES,
  OWNERSHIPS,
  SCOPES,
  SELECTORS,
} from "../kinds";
import styles from "../policies.module.css";
import type { Mode } from "../types";
import { ClassList } from "./ClassList";
import { type Draft, withKind } from "./policyDraft";

type Props = {
  draft: Draft;
  /** By path, why a field does not fit. */
  wrong: Record<string, string>;
  /** Versions of a policy are of one kind. */
  kindIsFixed?: boolean;
  onChange: (draft: Draft) => void;
};

const MODE_OPTIONS = Object.entries(MODES).map(([value, { label, about }]) => ({
  value: value as Mode,
  label,
  title: about,
}));
const OWNERSHIP_OPTIONS = Object.entries(OWNERSHIPS).map(([value, label]) => ({ value, label }));

/** Everything a version of a policy holds, as a form. */
export function PolicyForm({ draft, wrong, kindIsFixed = false, onChange }: Props) {
  const input = (path: string, label: string, help?: string, placeholder?: string) => (
    <TextInput
      key={path}
      label={label}
      description={help}
      placeholder={placeholder}
      value={draft.texts[path] ?? ""}
      error={wrong[path]}
      autoComplete="off"
      spellCheck={false}
      onChange={(event) => onChange({ ...draft, texts: { ...draft.texts, [path]: event.currentTarget.value } })}
    />
  );
  const lists = (part: string, of: Record<string, { label: string; help: string }>) =>
    Object.entries(of).map(([name, { label, help }]) => input(`${part}.${name}`, label, help, "all"));
  return (
    <>
      <Part title="What it is">
        {input("name", "Name", "What people call it, here and in the audit log.")}
        {input(
          "rank",
          "Rank",
          "Of two policies that want the same setting the lower rank has it; of the same rank, the older policy.",
        )}
        <NativeSelect
          label="Kind"
          description={KINDS[draft.kind].about}
          value={draft.kind}
          disabled={kindIsFixed}
          data={KIND_NAMES.map((value) => ({ value, label: KINDS[value].label }))}
          onChange={(event) => onChange(withKind(draft, event.currentTarget.value as Draft["kind"]))}
        />
        <Input.Wrapper size="xs" label="Mode" labelElement="div" description={MODES[draft.mode].about}>
          <Segments
            label="Mode"
            value={draft.mode}
            options={MODE_OPTIONS}
            onChange={(mode) => onChange({ ...draft, mode })}
          />
        </Input.Wrapper>
      </Part>
      <Part title={KINDS[draft.kind].label}>
        {fieldsOf(draft.kind).map(([name, field]) => (
          <SpecField
            key={`${draft.kind} ${name}`}
            path={`spec.${name}`}
            field={field}
            draft={draft}
            wrong={wrong}
            onChange={onChange}
            input={input}
          />
        ))}
      </Part>
      <Part title="For which nodes" note="all of what is given must fit">
        {input("selector.labels", "Labels", "Labels with shell patterns, for example role=db rack=r0*.", "all")}
        {lists("selector", SELECTORS)}
      </Part>
      <Part title="What on them it is about">{lists("scope", SCOPES)}</Part>
      <Part title="Against going back and forth">
        {Object.entries(DAMPINGS).map(([name, { label, unit, help }]) =>
          input(`damping.${name}`, `${label}, ${unit}`, help),
        )}
      </Part>
      <Part title="When somebody else sets the same">
        <NativeSelect
          label="While irqbalance or TuneD runs"
          description="What to do on a node where another program moves interrupts."
          value={draft.on_controller}
          data={OWNERSHIP_OPTIONS}
          onChange={(event) =>
            onChange({ ...draft, on_controller: event.currentTarget.value as Draft["on_controller"] })
          }
        />
        <NativeSelect
          label="When a setting was changed by others"
          description="What to do when a value is not the one that the policy had set."
          value={draft.on_drift}
          data={OWNERSHIP_OPTIONS}
          onChange={(event) => onChange({ ...draft, on_drift: event.currentTarget.value as Draft["on_drift"] })}
        />
      </Part>
      <Part title="Guardrails" note="a move is undone when one of them trips shortly after it">
        {METRIC_NAMES.map((metric) =>
          input(
            `guardrails.${metric}`,
            `${METRICS[metric].label} over, ${METRICS[metric].unit}`,
            undefined,
            "no limit",
          ),
        )}
      </Part>
    </>
  );
}

function Part({ title, note, children }: { title: string; note?: string; children: ReactNode }) {
  return (
    <section className="card" aria-label={title}>
      <h2>
        {title} <small>{note}</small>
      </h2>
      <div className={`body ${styles.fields}`}>{children}</div>
    </section>
  );
}

type SpecProps = {
  path: string;
  field: Field;
  draft: Draft;
  wrong: Record<string, string>;
  onChange: (draft: Draft) => void;
  input: (path: string, label: string, help: string, placeholder?: string) => ReactNode;
};

function SpecField({ path, field, draft, wrong, onChange, input }: SpecProps) {
  const { of, label, unit, help } = field;
  if (of.input === "classes")
    return (
      <ClassList
        label={label}
        help={help}
        list={draft.classes}
        wrong={wrong}
        path={path}
        onChange={(list) => onChange({ ...draft, classes: list })}
      />
    );
  if (of.input === "choices")
    return (
      <Checkbox.Group
        size="xs"
        label={label}
        description={help}
        value={Object.keys(of.options).filter((option) => draft.checks[`${path}.${option}`])}
        onChange={(chosen) => {
          const checks = Object.keys(of.options).map((option) => [`${path}.${option}`, chosen.includes(option)]);
          onChange({ ...draft, checks: { ...draft.checks, ...Object.fromEntries(checks) } });
        }}
      >
        {Object.entries(of.options).map(([value, text]) => (
          <Checkbox key={value} value={value} label={text} mt={4} />
        ))}
      </Checkbox.Group>
    );
  if (of.input === "check")
    return (
      <Checkbox
        label={label}
        description={help}
        checked={draft.checks[path] ?? false}
        onChange={(event) => onChange({ ...draft, checks: { ...draft.checks, [path]: event.currentTarget.checked } })}
      />
    );
  if (of.input === "choice")
    return (
      <NativeSelect
        label={label}
        description={help}
        value={draft.texts[path] ?? ""}
        data={Object.entries(of.options).map(([value, text]) => ({ value, label: text }))}
        onChange={(event) => onChange({ ...draft, texts: { ...draft.texts, [path]: event.currentTarget.value } })}
      />
    );
  return input(path, unit === undefined ? label : `${label}, ${unit}`, help, of.input === "cpus" ? "none" : undefined);
}
