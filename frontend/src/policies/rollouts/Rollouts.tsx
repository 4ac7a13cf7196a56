import { Button, NativeSelect } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, errorMessage, unwrap } from "../../api/client";
import { handleSignedOut, queryClient } from "../../api/queries";
import { useRefusal } from "../../auth/me";
import { ConfirmDialog } from "../../components/ConfirmDialog";
import { FormError } from "../../components/FormError";
import { fieldErrors } from "../../components/fieldErrors";
import { Moment } from "../../components/Moment";
import { formSchemas } from "../../forms/formSchemas";
import { SchemaFields } from "../../forms/SchemaField";
import { type Errors, readObject, valuesOf } from "../../forms/values";
import { countdown, formatCount } from "../../lib/format";
import { useRemaining } from "../../shell/ChangeBanner";
import { isWaiting } from "../approvals/shown";
import { guardrailText, kindLabel } from "../kinds";
import styles from "../policies.module.css";
import { movesMemory } from "../policyState";
import { isRolling, policiesQuery, rolloutQuery } from "../queries";
import type { PolicySearch } from "../search";
import type { Policy, PolicyBody, PolicyVersion, Rollout, RolloutCreate } from "../types";
import { stagesOf } from "./rolloutStages";
import { StageFigures } from "./StageFigures";
import { StageTable } from "./StageTable";

type Props = {
  policy: Policy;
  versions: PolicyVersion[];
  search: PolicySearch;
  navigate: (change: Partial<PolicySearch>) => void;
};

const refetch = () => queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey });

/** Rollouts of a policy's versions: start, progress, stop, roll back. */
export function Rollouts({ policy, versions, search, navigate }: Props) {
  // A completed rollout is no longer part of the policy; its result is still shown.
  const [seen, setSeen] = useState(policy.rollout?.id ?? null);
  const id = policy.rollout?.id ?? seen;
  if (id !== seen) setSeen(id);
  const last = useQuery(rolloutQuery(id)).data;
  const rollout = last ?? policy.rollout;
  return (
    <div className={styles.halves}>
      {rollout !== null && rollout !== undefined ? (
        <Progress rollout={rollout} labels={policy.body.selector.labels} />
      ) : (
        <section className="card">
          <h2>Rollout</h2>
          <p className="body muted">
            No rollout is in progress.{" "}
            {policy.enabled
              ? `Version ${policy.version} is in force on ${formatCount(policy.nodes, "node")}.`
              : "The policy is disabled."}
          </p>
        </section>
      )}
      {!isRolling(rollout ?? null) && rollout?.state !== "stopped" && (
        <Start policy={policy} versions={versions} search={search} navigate={navigate} onStart={setSeen} />
      )}
    </div>
  );
}

/** What stops a rollout, and rolls it back if told so. */
function useStop(rollout: Rollout, onStopped: () => void = () => undefined) {
  return useMutation({
    mutationFn: (rollBack: boolean) =>
      unwrap(
        api.POST("/api/v1/rollouts/{rollout_id}/stop", {
          params: { path: { rollout_id: rollout.id } },
          body: { roll_back: rollBack },
        }),
      ),
    onError: handleSignedOut,
    onSuccess: () => {
      onStopped();
      return refetch();
    },
  });
}

/** What becomes of the nodes of a rollout that is rolled back. */
const afterRollBack = ({ from_version }: Rollout): string =>
  from_version === null
    ? "they have no version, and the settings that it changed are restored."
    : `they return to version ${from_version}.`;

/** What rolls a rollout back without a person. */
const endsRollout = (guardrails: PolicyBody["guardrails"]): string =>
  guardrails.length === 0
    ? "a node stays disconnected or a stage makes the nodes worse."
    : `a node stays disconnected, a stage makes the nodes worse or a guardrail is violated: ${guardrails.map(guardrailText).join(", ")}.`;

function RollBack({ rollout, onClose }: { rollout: Rollout; onClose: () => void }) {
  const stop = useStop(rollout, onClose);
  const updated = formatCount(rollout.stages.slice(0, rollout.stage + 1).flat().length, "node");
  return (
    <ConfirmDialog
      title={`Roll back version ${rollout.to_version}?`}
      action={`Roll back on ${updated}`}
      pending={stop.isPending}
      error={stop.error}
      onConfirm={() => stop.mutate(true)}
      onClose={onClose}
    >
      <p>
        Version {rollout.to_version} reached {updated}. At once, or on reconnect, {afterRollBack(rollout)}
      </p>
    </ConfirmDialog>
  );
}

function Progress({ rollout, labels }: { rollout: Rollout; labels: Record<string, string> }) {
  const refusal = useRefusal("Stopping a rollout", labels);
  const rolling = isRolling(rollout);
  const remaining = useRemaining(rollout);
  const [isAsking, setAsking] = useState(false);
  const stop = useStop(rollout);
  const stages = stagesOf(rollout);
  const all = rollout.stages.flat().length;
  const done = rollout.done_nodes.length;
  return (
    <section className="card" aria-label="Rollout">
      <h2>
        {rollout.from_version === null ? "" : `Version ${rollout.from_version} → `}version {rollout.to_version}
        <small>
          by {rollout.started_by}, <Moment at={rollout.started_at} />
        </small>
      </h2>
      <div className="body">
        <p role="status">
          <span className={`dot ${rolling ? "warn" : rollout.state === "done" ? "ok" : "bad"}`} />
          {rollout.sentence}
        </p>
        <div className={styles.meter}>
          <progress max={all} value={done} aria-label="Nodes that have passed" />
          <b>
            {done} of {formatCount(all, "node")} passed
          </b>
          <span className={`muted ${styles.left}`}>
            {remaining !== null &&
              `stage ${rollout.stage + 1} of ${stages.length}, ${
                remaining > 0 ? `next in ${countdown(remaining)}` : "waits for the samples of its nodes"
              }`}
          </span>
        </div>
        <StageTable rollout={rollout} />
        {rollout.evidence.map((one) => (
          <StageFigures key={one.stage} evidence={one} />
        ))}
        {rolling && <p className="muted">Rolled back automatically if {endsRollout(rollout.guardrails)}</p>}
        {(rolling || rollout.state === "stopped") && (
          <div className={styles.buttons}>
            {rolling && (
              <Button disabled={refusal !== null} loading={stop.isPending} onClick={() => stop.mutate(false)}>
                Stop
              </Button>
            )}
            <Button disabled={refusal !== null || stop.isPending} onClick={() => setAsking(true)}>
              {rolling ? "Stop and roll back" : "Roll back"}
            </Button>
            <span className="muted">
              {refusal !== null && `${refusal} `}
              {rolling
                ? "If stopped, nodes stay at their present version. If rolled back,"
                : "Nodes stay at their present version, and no other rollout can start, until this one is rolled back; then"}{" "}
              {afterRollBack(rollout)}
            </span>
          </div>
        )}
        {stop.isError && (
          <p className="bad" role="alert">
            {errorMessage(stop.error)}
          </p>
        )}
        {isAsking && <RollBack rollout={rollout} onClose={() => setAsking(false)} />}
      </div>
    </section>
  );
}

type StartProps = Props & { onStart: (rolloutId: number) => void };
/** Fields of a rollout that this form does not show: the version is chosen above, and its guardrails apply. */
const HIDDEN_FIELDS = ["version", "guardrails"];
/** Only a version that ends the enforcement can leave memory where the policy has moved it. */
const hiddenFields = (policy: Policy, mode: PolicyBody["mode"]): string[] =>
  movesMemory(policy) && mode !== "enforce" ? HIDDEN_FIELDS : [...HIDDEN_FIELDS, "leave_pages"];

function Start({ policy, versions, search, navigate, onStart }: StartProps) {
  const refusal = useRefusal("Starting a rollout", policy.body.selector.labels);
  const schema = formSchemas().rollout;
  const [values, setValues] = useState(() => valuesOf(schema, policy.pace));
  const version = search.version ?? versions[0]?.version ?? policy.version;
  const body = versions.find((one) => one.version === version)?.body ?? policy.body;
  const errors: Errors = {};
  const hidden = hiddenFields(policy, body.mode);
  const typed = readObject(schema, "", values, errors, hidden);
  const start = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/policies/{policy_id}/rollouts", {
          params: { path: { policy_id: policy.id } },
          body: { ...(typed as Omit<RolloutCreate, "version" | "guardrails">), version },
        }),
      ),
    onError: handleSignedOut,
    onSuccess: (outcome) => {
      if (!isWaiting(outcome)) onStart(outcome.id);
      return refetch();
    },
  });
  const fits = Object.keys(errors).length === 0;
  const wrong = fieldErrors(errors, start.error);
  return (
    <section className="card">
      <h2>
        Roll out a version <small>{kindLabel(body.spec.type)}</small>
      </h2>
      <form
        className={`body ${styles.fields}`}
        aria-label="Rollout"
        onSubmit={(event) => {
          event.preventDefault();
          if (fits) start.mutate();
        }}
      >
        <NativeSelect
          label="Version"
          description={`Its mode is ${body.mode}.`}
          value={String(version)}
          error={wrong.version}
          data={versions.map((one) => ({
            value: String(one.version),
            label: `${one.version}${one.version === policy.version && policy.enabled ? ", in force" : ""}${one.note && ` · ${one.note}`}`,
          }))}
          onChange={(event) => navigate({ version: Number(event.currentTarget.value) })}
        />
        <SchemaFields
          schema={schema}
          path=""
          except={hidden}
          values={values}
          errors={wrong}
          onChange={(path, value) => setValues({ ...values, [path]: value })}
        />
        {body.mode !== "enforce" && (
          <p className={`warn ${styles.across}`}>
            Version {version} has the mode {body.mode}: it changes nothing on a node
            {policy.enabled && policy.body.mode === "enforce" && ", and what the policy has changed there is restored"}.
            Only a version in mode enforce writes.
          </p>
        )}
        <div className={styles.save}>
          <Button type="submit" variant="filled" disabled={refusal !== null || !fits} loading={start.isPending}>
            Start the rollout
          </Button>
          <span className="muted">
            {refusal !== null
              ? refusal
              : `Rolls out version ${version} to ${formatCount(policy.nodes, "node")}, as far as they are connected, ${values.canary} first. Rolled back on all of them if ${endsRollout(body.guardrails)}`}
          </span>
          <FormError error={start.error} fields={Object.keys(wrong)} />
        </div>
      </form>
    </section>
  );
}
