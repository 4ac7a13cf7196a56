import { Button, TextInput } from "@mantine/core";
import { keepPreviousData, useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { Segments } from "../components/Segments";
import { formatCount } from "../lib/format";
import { parseLabels } from "../lib/labels";
import { type StopEffect, stopEffectQuery, stopsQuery } from "./queries";
import styles from "./stops.module.css";
import { alsoAffected, nodesOf } from "./words";

const SCOPES = [
  { value: "all", label: "all nodes" },
  { value: "label", label: "by label…" },
] as const;
const CHOICES = [
  { restore: false, label: "Freeze: settings keep their present values" },
  { restore: true, label: "Restore: settings get the values that Coresteer found" },
];
type Scope = (typeof SCOPES)[number]["value"];

/** Opens the dialog that stops enforcement; for administrators. */
export function StopButton({ isOpen, setOpen }: { isOpen: boolean; setOpen: (isOpen: boolean) => void }) {
  const isAdmin = useHasRole("admin");
  if (!isAdmin) return null;
  return (
    <>
      <Button color="var(--bad)" variant="outline" onClick={() => setOpen(true)}>
        Stop enforcement…
      </Button>
      {isOpen && <StopDialog onClose={() => setOpen(false)} />}
    </>
  );
}

function StopDialog({ onClose }: { onClose: () => void }) {
  const [scope, setScope] = useState<Scope>("all");
  const [line, setLine] = useState("");
  const [isRestore, setRestore] = useState(false);
  const [reason, setReason] = useState("");
  const labels = scope === "all" ? {} : parseLabels(line);
  const invalid = typeof labels === "string" ? labels : null;
  const isChosen = invalid === null && (scope === "all" || Object.keys(labels).length > 0);
  const effect = useQuery({
    ...stopEffectQuery(typeof labels === "string" ? {} : labels),
    enabled: isChosen,
    placeholderData: keepPreviousData,
  });
  const begin = useMutation({
    mutationFn: (body: Schemas["StopCreate"]) => unwrap(api.POST("/api/v1/stops", { body })),
    onSettled: () => queryClient.invalidateQueries({ queryKey: stopsQuery.queryKey }),
    onSuccess: onClose,
  });
  const shown = isChosen && !effect.isPlaceholderData ? effect.data : undefined;
  const error = begin.error ?? effect.error;
  return (
    <ConfirmDialog
      title="Stop enforcement"
      action={`Stop on ${shown === undefined ? "… nodes" : formatCount(nodesOf(shown), "node")}`}
      disabled={typeof labels === "string" || shown === undefined || nodesOf(shown) === 0}
      pending={begin.isPending}
      error={error}
      onConfirm={() => typeof labels !== "string" && begin.mutate({ labels, restore: isRestore, reason })}
      onClose={onClose}
    >
      <p className="muted">
        Policies write nothing until you lift the stop. People can still change settings; unconfirmed changes are still
        rolled back.
      </p>
      <div className={styles.fields}>
        <span>Where</span>
        <div className={styles.scope}>
          <Segments label="Where" value={scope} options={SCOPES} onChange={setScope} />
          {scope === "label" && (
            <TextInput
              aria-label="Labels"
              placeholder="rack=r01 role=db*"
              value={line}
              error={line.trim() === "" ? null : invalid}
              onChange={(event) => setLine(event.currentTarget.value)}
            />
          )}
        </div>
        <span>What</span>
        <div className={styles.choice} role="radiogroup" aria-label="What">
          {CHOICES.map(({ restore, label }) => (
            <label key={label}>
              <input type="radio" name="what" checked={isRestore === restore} onChange={() => setRestore(restore)} />
              {label}
            </label>
          ))}
        </div>
        <label htmlFor="stop-reason">Reason</label>
        <TextInput
          id="stop-reason"
          maxLength={500}
          autoComplete="off"
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
      </div>
      <ReachTable effect={shown} />
      <p className="muted">{(shown && alsoAffected(shown)) ?? "\u00a0"}</p>
    </ConfirmDialog>
  );
}

function ReachTable({ effect }: { effect: StopEffect | undefined }) {
  const rows = [
    { name: "connected", reach: effect?.connected, when: "within seconds" },
    { name: "disconnected", reach: effect?.disconnected, when: "on reconnecting" },
  ];
  return (
    <table className={`table ${styles.reach}`}>
      <thead>
        <tr>
          <th>reaches</th>
          <th className="n">nodes</th>
          <th className="n">settings</th>
          <th>when</th>
        </tr>
      </thead>
      <tbody>
        {rows.map(({ name, reach, when }) => (
          <tr key={name}>
            <td>{name}</td>
            <td className="n">{reach?.nodes.toLocaleString("en") ?? "…"}</td>
            <td className="n" title={reach && reach.uncounted > 0 ? unknownNote(reach.uncounted) : undefined}>
              {reach === undefined ? "…" : `${reach.uncounted > 0 ? "≥ " : ""}${reach.settings.toLocaleString("en")}`}
            </td>
            <td>{when}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

const unknownNote = (nodes: number): string =>
  `${formatCount(nodes, "node")} ${nodes === 1 ? "has" : "have"} not reported how many settings have been changed.`;
