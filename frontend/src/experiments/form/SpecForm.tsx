import { Input, NativeSelect, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Schemas } from "../../api/client";
import { nodesQuery } from "../../api/queries";
import { Segments } from "../../components/Segments";
import { labelWithUnit } from "../../lib/metrics";
import { METRIC_NAMES, METRICS } from "../../policies/kinds";
import layoutStyles from "../../policies/policies.module.css";
import { KINDS } from "../states";
import type { Kind } from "../types";
import { FactorEditor } from "./FactorEditor";
import { FormPart } from "./FormPart";
import { knownSettings } from "./knownSettings";
import { type Draft, NUMBERS, newFactor, withKind, withWorkload } from "./specDraft";
import { WorkloadField } from "./WorkloadField";
import { hasPeer, WORKLOAD_TYPES, WORKLOADS } from "./workloads";

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
  return (
    <>
      <FormPart title="What is compared">
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
      </FormPart>
      <FormPart title="Load" note={workload.about}>
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
      </FormPart>
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
      <PrimaryMetric draft={draft} at={at} onChange={onChange} />
      <Schedule draft={draft} wrong={wrong} onChange={onChange} />
      <Guardrails draft={draft} wrong={wrong} onChange={onChange} />
    </>
  );
}

type PrimaryProps = Pick<Props, "draft" | "onChange"> & { at: (path: string, text: string) => string | undefined };

/** The metric that decides the experiment, named before anything is measured. */
function PrimaryMetric({ draft, at, onChange }: PrimaryProps) {
  const names = [...WORKLOADS[draft.type].primary, draft.primary];
  const figures = [...new Set(names)].filter((name) => name !== "");
  return (
    <FormPart title="What decides">
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
          data={figures.map((value) => ({ value, label: labelWithUnit(value) }))}
          onChange={(event) => onChange({ ...draft, primary: event.currentTarget.value })}
        />
      )}
    </FormPart>
  );
}

type PartProps = Pick<Props, "draft" | "wrong" | "onChange">;

/** Durations, numbers of runs and the seed of their order. */
function Schedule({ draft, wrong, onChange }: PartProps) {
  return (
    <FormPart title="How long and how often">
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
    </FormPart>
  );
}

/** The bounds at which the experiment stops. */
function Guardrails({ draft, wrong, onChange }: PartProps) {
  return (
    <FormPart title="Guardrails" note="the experiment stops and everything is put back when one of them trips">
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
    </FormPart>
  );
}
