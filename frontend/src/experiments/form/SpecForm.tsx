import { Checkbox, Input, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo } from "react";
import type { Schemas } from "../../api/client";
import { nodesQuery } from "../../api/queries";
import { Segments } from "../../components/Segments";
import { METRIC_NAMES, METRICS } from "../../policies/kinds";
import layoutStyles from "../../policies/policies.module.css";
import { KINDS } from "../format";
import type { Kind } from "../types";
import { FactorEditor } from "./FactorEditor";
import { knownSettings } from "./knownSettings";
import { type Draft, NUMBERS, newFactor, withKind, withWorkload } from "./specDraft";
import { FIGURES, type Field, hasPeer, WORKLOAD_TYPES, WORKLOADS } from "./workloads";

type Props = {
  draft: Draft;
  node: Schemas["Node"] | undefined;
  wrong: Record<string, string>;
  /** Also what was not typed yet is said to be missing. */
  showMissing: boolean;
  onChange: (draft: Draft) => void;
};

const KIND_OPTIONS = (Object.keys(KINDS) as Kind[]).map((value) => ({
  value,
  label: KINDS[value].label,
  title: KINDS[value].about,
}));

/** Everything that an experiment is, as a form. */
export function SpecForm({ draft, node, wrong, showMissing, onChange }: Props) {
  const nodes = useQuery(nodesQuery).data ?? [];
  const known = useMemo(() => knownSettings(node?.inventory), [node]);
  const workload = WORKLOADS[draft.type];
  /** A message at a field: what is merely not typed yet is not held against anybody before they try. */
  const at = (path: string, text: string) => (text === "" && !showMissing ? undefined : wrong[path]);
  const figures = [...new Set([...workload.primary, draft.primary])].filter((name) => name !== "");
  return (
    <>
      <Part title="What is compared">
        <TextInput
          label="Name"
          description="What people call it, here and in reports."
          value={draft.name}
          error={at("name", draft.name)}
          autoComplete="off"
          onChange={(event) => onChange({ ...draft, name: event.currentTarget.value })}
        />
        <Input.Wrapper
          size="xs"
          label="Kind"
          labelElement="div"
          description={KINDS[draft.kind].about}
          descriptionProps={{ mb: 4 }}
        >
          <Segments
            label="Kind"
            value={draft.kind}
            options={KIND_OPTIONS}
            onChange={(kind) => onChange(withKind(draft, kind))}
          />
        </Input.Wrapper>
      </Part>
      <Part title="Load" note={workload.about}>
        <NativeSelect
          label="Workload"
          value={draft.type}
          data={WORKLOAD_TYPES.map((value) => ({ value, label: WORKLOADS[value].label }))}
          onChange={(event) => onChange(withWorkload(draft, event.currentTarget.value as Draft["type"]))}
        />
        {hasPeer(draft.type) && (
          <NativeSelect
            label="Sent by"
            value={draft.peer ?? ""}
            data={[
              { value: "", label: "the node itself, from a network namespace" },
              ...nodes.filter(({ id }) => id !== node?.id).map(({ id, name }) => ({ value: String(id), label: name })),
            ]}
            onChange={(event) => onChange({ ...draft, peer: Number(event.currentTarget.value) || null })}
          />
        )}
        {Object.entries(workload.fields).map(([name, field]) => (
          <WorkloadField
            key={`${draft.type} ${name}`}
            field={field}
            value={draft.workload[name] ?? ""}
            error={at(`workload.${name}`, draft.workload[name] ?? "")}
            onChange={(value) => onChange({ ...draft, workload: { ...draft.workload, [name]: value } })}
          />
        ))}
      </Part>
      {draft.factors.map((factor, place) => (
        <FactorEditor
          key={factor.id}
          factor={factor}
          path={`factors.${place}`}
          sweep={draft.kind === "sweep"}
          type={draft.type}
          known={known}
          at={at}
          onChange={(next) =>
            onChange({ ...draft, factors: draft.factors.map((one) => (one.id === factor.id ? next : one)) })
          }
          onRemove={
            draft.factors.length > 1
              ? () => onChange({ ...draft, factors: draft.factors.filter((one) => one.id !== factor.id) })
              : null
          }
        />
      ))}
      {draft.kind === "sweep" && draft.factors.length === 1 && (
        <p className={layoutStyles.note}>
          <button
            type="button"
            className="link"
            onClick={() => onChange({ ...draft, factors: [...draft.factors, newFactor()] })}
          >
            Vary a second thing
          </button>
          : every combination of both is measured.
        </p>
      )}
      <Part title="What decides">
        {draft.type === "command" ? (
          <TextInput
            label="Figure"
            description="command.NAME is what the command told of itself by this name."
            value={draft.primary}
            error={at("primary", draft.primary)}
            onChange={(event) => onChange({ ...draft, primary: event.currentTarget.value })}
          />
        ) : (
          <NativeSelect
            label="Figure"
            description="Named before anything is measured; every other figure is told too."
            value={draft.primary}
            data={figures.map((value) => ({ value, label: FIGURES[value] ?? value }))}
            onChange={(event) => onChange({ ...draft, primary: event.currentTarget.value })}
          />
        )}
      </Part>
      <Part title="How long and how often">
        {Object.entries(NUMBERS).map(([name, { label, unit, help }]) => {
          const value = draft.texts[name as keyof typeof NUMBERS];
          return (
            <TextInput
              key={name}
              label={unit === "" ? label : `${label}, ${unit}`}
              description={help}
              inputMode="decimal"
              value={value}
              error={wrong[name]}
              onChange={(event) => onChange({ ...draft, texts: { ...draft.texts, [name]: event.currentTarget.value } })}
            />
          );
        })}
        <TextInput
          label="Seed"
          description="Of the order of the runs; empty draws one."
          placeholder="drawn"
          inputMode="numeric"
          value={draft.texts.seed}
          error={wrong.seed}
          onChange={(event) => onChange({ ...draft, texts: { ...draft.texts, seed: event.currentTarget.value } })}
        />
      </Part>
      <Part title="Guardrails" note="the experiment stops and everything is put back when one of them trips">
        {METRIC_NAMES.map((metric) => (
          <TextInput
            key={metric}
            label={`${METRICS[metric].label} over, ${METRICS[metric].unit}`}
            placeholder="no limit"
            inputMode="decimal"
            value={draft.guardrails[metric] ?? ""}
            error={wrong[`guardrails.${metric}`]}
            onChange={(event) =>
              onChange({ ...draft, guardrails: { ...draft.guardrails, [metric]: event.currentTarget.value } })
            }
          />
        ))}
      </Part>
    </>
  );
}

export function Part({ title, note, children }: { title: string; note?: string; children: ReactNode }) {
  return (
    <section className="card" aria-label={title}>
      <h2>
        {title} <small>{note}</small>
      </h2>
      <div className={`body ${layoutStyles.fields}`}>{children}</div>
    </section>
  );
}

type FieldProps = {
  field: Field;
  value: string;
  error?: string | undefined;
  onChange: (value: string) => void;
};

/** One field of a workload. */
export function WorkloadField({ field: { of, label, unit, help }, value, error, onChange }: FieldProps) {
  if (of.input === "check")
    return (
      <Checkbox
        size="xs"
        label={label}
        checked={value === "true"}
        onChange={(event) => onChange(event.currentTarget.checked ? "true" : "")}
      />
    );
  if (of.input === "choice")
    return (
      <NativeSelect
        label={label}
        description={help}
        value={value}
        data={Object.entries(of.options).map(([option, words]) => ({ value: option, label: words }))}
        onChange={(event) => onChange(event.currentTarget.value)}
      />
    );
  return (
    <TextInput
      label={unit ? `${label}, ${unit}` : label}
      description={help}
      placeholder={of.input === "cpus" ? "any" : undefined}
      inputMode={of.input === "number" ? "numeric" : "text"}
      autoComplete="off"
      spellCheck={false}
      value={value}
      error={error}
      onChange={(event) => onChange(event.currentTarget.value)}
    />
  );
}
