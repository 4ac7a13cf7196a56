import { Button, Checkbox, NumberInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { Managed } from "../components/Managed";
import { RowsTable } from "../components/RowsTable";
import { labelsText } from "../lib/labels";
import styles from "./alerts.module.css";
import { type Rule, refetchAlerts, rulesQuery } from "./queries";
import { ruleText } from "./words";

type Body = Schemas["AlertRuleBody"];

const bodyOf = ({ name, signal, labels, threshold, clear, for_s, keep_s, severity, enabled }: Rule): Body => ({
  name,
  signal: signal as Body["signal"],
  labels,
  threshold,
  clear,
  for_s,
  keep_s,
  severity,
  enabled,
});

function useChange(onSuccess: () => void = () => undefined) {
  return useMutation({
    mutationFn: async ({ id, changed }: { id: number; changed: Partial<Body> }) => {
      // The request has the whole rule: of the cached one, it would undo what others changed meanwhile.
      const rule = (await unwrap(api.GET("/api/v1/alert-rules"))).find((one) => one.id === id);
      if (rule === undefined) throw new Error("This rule no longer exists.");
      const body = { ...bodyOf(rule), ...changed };
      return unwrap(api.PUT("/api/v1/alert-rules/{rule_id}", { params: { path: { rule_id: id } }, body }));
    },
    onError: handleSignedOut,
    onSuccess: () => {
      onSuccess();
      return refetchAlerts();
    },
  });
}

const NUMBERS = ["threshold", "for_s", "clear", "keep_s"] as const;

function Edit({ rule, onClose }: { rule: Rule; onClose: () => void }) {
  const body = bodyOf(rule);
  const [entered, setEntered] = useState(() =>
    Object.fromEntries(NUMBERS.map((name) => [name, String(body[name] ?? 0)])),
  );
  const numbers = Object.fromEntries(NUMBERS.map((name) => [name, Number(entered[name])]));
  const change = useChange(onClose);
  const fields = [
    { field: "threshold", label: "Fires at", unit: rule.unit },
    { field: "for_s", label: "Must hold before it fires", unit: "s" },
    { field: "clear", label: "Resolved below", unit: rule.unit },
    { field: "keep_s", label: "Must hold before it is resolved", unit: "s" },
  ] as const;
  return (
    <ConfirmDialog
      title={`Change “${rule.name}”`}
      action="Save"
      harmless
      pending={change.isPending}
      error={change.error}
      disabled={NUMBERS.some((name) => entered[name] === "")}
      onConfirm={() => change.mutate({ id: rule.id, changed: numbers })}
      onClose={onClose}
    >
      <p>
        {rule.label}: {rule.meaning}. Between both values nothing changes.
      </p>
      <div className={styles.fields}>
        {fields.map(({ field, label, unit }) => (
          <NumberInput
            key={field}
            label={unit === "" ? label : `${label}, ${unit}`}
            min={0}
            required
            value={entered[field] ?? ""}
            error={entered[field] === "" && "Enter a number."}
            onChange={(value) => setEntered({ ...entered, [field]: String(value) })}
          />
        ))}
      </div>
    </ConfirmDialog>
  );
}

/** Rules of alerts: when each fires; administrators change them. */
export function Rules() {
  const rules = useQuery(rulesQuery);
  const isAdmin = useHasRole("admin");
  const [editing, setEditing] = useState<Rule | null>(null);
  const toggle = useChange();
  return (
    <section className="card">
      <h2>
        Rules <small>evaluated every 15 s by the backend that leads</small>
      </h2>
      {!isAdmin && <p className="body muted">Changing rules needs the admin role.</p>}
      {toggle.isError && (
        <p className="body bad" role="alert">
          {errorMessage(toggle.error)}
        </p>
      )}
      <RowsTable
        rows={rules}
        label="rules"
        columns={["rule", "condition", "severity", "nodes", "firing"]}
        numeric={["firing"]}
      >
        {(rule) => (
          <tr>
            <td>
              {rule.name} <Managed kind="AlertRule" id={rule.id} />
              <span className={`muted ${styles.meaning}`}>
                {rule.label}: {rule.meaning}
              </span>
            </td>
            <td>
              <span className={styles.meaning}>{ruleText(rule)}</span>
            </td>
            <td>{rule.severity}</td>
            <td className="mono">{labelsText(rule.labels) || "all"}</td>
            <td className="n">{rule.firing}</td>
            <td>
              {isAdmin && (
                <div className={styles.buttons}>
                  <Checkbox
                    size="xs"
                    label="enabled"
                    checked={rule.enabled}
                    aria-label={`${rule.name} enabled`}
                    onChange={({ currentTarget: { checked } }) =>
                      toggle.mutate({ id: rule.id, changed: { enabled: checked } })
                    }
                  />
                  <Button onClick={() => setEditing(rule)} aria-label={`Change ${rule.name}`}>
                    Change…
                  </Button>
                </div>
              )}
            </td>
          </tr>
        )}
      </RowsTable>
      {editing !== null && <Edit rule={editing} onClose={() => setEditing(null)} />}
    </section>
  );
}
