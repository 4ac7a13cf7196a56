import { Button, NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { optionsOf } from "../../forms/schema";
import { modeHelp, policySchema } from "../../policies/kinds";
import { policiesQuery } from "../../policies/queries";
import type { Mode } from "../../policies/types";
import styles from "../experiments.module.css";
import type { LevelDraft } from "./specDraft";

type PolicyProps = {
  policy: NonNullable<LevelDraft["policy"]>;
  error: string | undefined;
  onChange: (policy: LevelDraft["policy"]) => void;
};

/** A version of a policy that is in force during a run. */
export function LevelPolicy({ policy, error, onChange }: PolicyProps) {
  const policies = useQuery(policiesQuery).data ?? [];
  const known = policies.find(({ id }) => id === policy.id);
  return (
    <div className={styles.row}>
      <NativeSelect
        label="Policy"
        value={policy.id || ""}
        error={error}
        data={[
          { value: "", label: policies.length === 0 ? "no policy exists yet" : "choose one" },
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
        title={modeHelp(policy.mode)}
        value={policy.mode}
        data={optionsOf(policySchema("mode"))}
        onChange={(event) => onChange({ ...policy, mode: event.currentTarget.value as Mode })}
      />
      <Button aria-label="Remove the policy" onClick={() => onChange(null)}>
        ×
      </Button>
    </div>
  );
}
