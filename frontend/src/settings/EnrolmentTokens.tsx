import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { handleSignedOut, queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { FormError, fieldError } from "../components/FormError";
import { Moment } from "../components/Moment";
import { RowsTable } from "../components/RowsTable";
import { parseLabels } from "../lib/labels";
import { dateTime } from "../lib/time";
import { EnrolCommand } from "./EnrolNode";
import { ENROLMENT_TOKENS, tokenAllows, useEnrolment } from "./enrolment";
import styles from "./settings.module.css";

type Token = Schemas["EnrolmentToken"];

const PERIODS = [
  { value: "60", label: "1 hour" },
  { value: "1440", label: "1 day" },
  { value: "10080", label: "7 days" },
  { value: "129600", label: "90 days" },
];
const FIELDS = ["max_uses", "name_pattern", "labels", "rejoin_for_minutes"];

/** Creates a token for one or several nodes, says what it allows, and shows the command that uses it. */
export function AddNodes() {
  const [count, setCount] = useState("1");
  const [minutes, setMinutes] = useState("60");
  const [pattern, setPattern] = useState("");
  const [line, setLine] = useState("");
  const [rejoin, setRejoin] = useState("");
  const enrol = useEnrolment();
  const labels = parseLabels(line);
  const uses = Number(count);
  const preview =
    typeof labels !== "string" &&
    `${tokenAllows({
      max_uses: uses,
      simulated: false,
      node_name: null,
      name_pattern: pattern || null,
      labels,
      rejoin_until: (rejoin && new Date(Date.now() + Number(rejoin) * 60_000).toISOString()) || null,
    })} It expires on ${dateTime(Date.now() + Number(minutes) * 60_000)}.`;
  const submit = (event: FormEvent) => {
    event.preventDefault();
    if (typeof labels === "string") return;
    enrol.mutate({
      max_uses: uses,
      expires_in_minutes: Number(minutes),
      name_pattern: pattern || null,
      labels,
      rejoin_for_minutes: rejoin === "" ? null : Number(rejoin),
    });
  };
  if (!useHasRole("admin"))
    return <p className="muted">Adding a node needs the admin role; ask an administrator for the command.</p>;
  return (
    <>
      <form className={styles.enrolment} onSubmit={submit}>
        <TextInput
          label="Nodes"
          description="How many may enrol"
          type="number"
          required
          min={BOUNDS.EnrolmentTokenCreate.max_uses.minimum}
          max={BOUNDS.EnrolmentTokenCreate.max_uses.maximum}
          value={count}
          error={fieldError(enrol.error, "max_uses")}
          onChange={(event) => setCount(event.currentTarget.value)}
        />
        <NativeSelect
          label="Valid for"
          description="From now on"
          data={PERIODS}
          value={minutes}
          onChange={(event) => {
            setMinutes(event.currentTarget.value);
            if (Number(rejoin) > Number(event.currentTarget.value)) setRejoin("");
          }}
        />
        <TextInput
          label="Names"
          description="Shell pattern: * is any text, ? one character"
          placeholder="any"
          autoComplete="off"
          spellCheck={false}
          value={pattern}
          error={fieldError(enrol.error, "name_pattern")}
          onChange={(event) => setPattern(event.currentTarget.value.trim())}
        />
        <TextInput
          label="Labels"
          description="For example role=db rack=r01"
          placeholder="none"
          autoComplete="off"
          spellCheck={false}
          value={line}
          error={typeof labels === "string" ? labels : fieldError(enrol.error, "labels")}
          onChange={(event) => setLine(event.currentTarget.value)}
        />
        <NativeSelect
          label="Nodes that exist may enrol again"
          description="A stolen token can re-enrol these nodes"
          data={[
            { value: "", label: "never" },
            ...PERIODS.filter(({ value }) => Number(value) <= Number(minutes)).map(({ value, label }) => ({
              value,
              label: `for ${label}`,
            })),
          ]}
          value={rejoin}
          error={fieldError(enrol.error, "rejoin_for_minutes")}
          onChange={(event) => setRejoin(event.currentTarget.value)}
        />
        {preview !== false && <p>{preview}</p>}
        <Button type="submit" variant="filled" w="fit-content" disabled={preview === false} loading={enrol.isPending}>
          Show the command
        </Button>
        <FormError error={enrol.error} fields={FIELDS} />
      </form>
      {enrol.isSuccess && <EnrolCommand enrol={enrol} />}
    </>
  );
}

function Revoke({ token, onClose }: { token: Token; onClose: () => void }) {
  const revoke = useMutation({
    mutationFn: () =>
      unwrap(api.DELETE("/api/v1/enrolment-tokens/{token_id}", { params: { path: { token_id: token.id } } })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return queryClient.invalidateQueries({ queryKey: ENROLMENT_TOKENS });
    },
  });
  return (
    <ConfirmDialog
      title={`Revoke enrolment token ${token.id}`}
      action="Revoke"
      pending={revoke.isPending}
      error={revoke.error}
      onConfirm={() => revoke.mutate()}
      onClose={onClose}
    >
      <p>It enrols nobody from then on. Nodes that have enrolled with it keep their keys.</p>
    </ConfirmDialog>
  );
}

/** Table of the enrolment tokens that have not expired, for administrators. */
export function EnrolmentTokens() {
  const tokens = useQuery({ queryKey: ENROLMENT_TOKENS, queryFn: () => unwrap(api.GET("/api/v1/enrolment-tokens")) });
  const [revoking, setRevoking] = useState<Token | null>(null);
  return (
    <section className="card">
      <h2>
        Enrolment tokens <small>{tokens.data?.length ?? ""}</small>
      </h2>
      <RowsTable
        rows={tokens}
        label="enrolment tokens"
        columns={["token", "what it allows", "uses left", "last used", "expires", "created by"]}
        numeric={["token", "uses left"]}
      >
        {(token) => (
          <tr>
            <td className="n">{token.id}</td>
            <td className="wrap">{tokenAllows(token)}</td>
            <td className="n">
              {token.uses_left} of {token.max_uses}
            </td>
            <td>
              <Moment at={token.last_used_at} />
            </td>
            <td>
              <Moment at={token.expires_at} />
            </td>
            <td>{token.created_by}</td>
            <td>
              <Button onClick={() => setRevoking(token)} aria-label={`Revoke enrolment token ${token.id}`}>
                Revoke
              </Button>
            </td>
          </tr>
        )}
      </RowsTable>
      {revoking !== null && <Revoke token={revoking} onClose={() => setRevoking(null)} />}
    </section>
  );
}
