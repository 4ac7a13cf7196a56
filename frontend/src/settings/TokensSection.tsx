import { Button, NativeSelect, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { handleSignedOut, queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { CopyField, Secret } from "../components/CopyField";
import { FormError, fieldError } from "../components/FormError";
import { Moment } from "../components/Moment";
import { RowsTable } from "../components/RowsTable";
import { labelsText } from "../lib/labels";
import { RoleLabels } from "./RoleLabels";
import styles from "./settings.module.css";

const ROLES: Schemas["Role"][] = ["viewer", "operator", "admin"];
const LIFETIMES = [
  { value: "30", label: "30 days" },
  { value: "90", label: "90 days" },
  { value: "365", label: "1 year" },
  { value: "", label: "no expiry" },
];
const KEY = ["tokens"];
const refetch = () => queryClient.invalidateQueries({ queryKey: KEY });

function NewToken() {
  const [name, setName] = useState("");
  const [role, setRole] = useState<Schemas["Role"]>("viewer");
  const [roleLabels, setRoleLabels] = useState<Record<string, string>>({});
  const [days, setDays] = useState("90");
  const create = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/tokens", {
          body: { name, role, role_labels: roleLabels, expires_in_days: days === "" ? null : Number(days) },
        }),
      ),
    onError: handleSignedOut,
    onSuccess: () => {
      setName("");
      return refetch();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate();
  };
  return (
    <>
      <form className={styles.form} onSubmit={submit}>
        <TextInput
          label="Purpose"
          required
          maxLength={BOUNDS.ApiTokenCreate.name.maxLength}
          autoComplete="off"
          w={240}
          value={name}
          error={fieldError(create.error, "name")}
          onChange={(event) => setName(event.currentTarget.value)}
        />
        <NativeSelect
          label="Role"
          data={ROLES}
          value={role}
          error={fieldError(create.error, "role")}
          onChange={(event) => {
            setRole(event.currentTarget.value as Schemas["Role"]);
            setRoleLabels({});
          }}
        />
        {role === "operator" && <RoleLabels value={roleLabels} onChange={setRoleLabels} />}
        <NativeSelect
          label="Valid for"
          data={LIFETIMES}
          value={days}
          onChange={(event) => setDays(event.currentTarget.value)}
        />
        <Button type="submit" variant="filled" loading={create.isPending}>
          Create token
        </Button>
        <FormError error={create.error} fields={["name", "role"]} />
      </form>
      {create.isSuccess && (
        <Secret>
          <p>The token “{create.data.name}”. Copy it now: it is not shown again.</p>
          <CopyField text={create.data.token} label="token" />
          <p className="muted">
            Scripts send it as <code>Authorization: Bearer …</code>
          </p>
        </Secret>
      )}
    </>
  );
}

function Delete({ token, onClose }: { token: Schemas["ApiToken"]; onClose: () => void }) {
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/tokens/{token_id}", { params: { path: { token_id: token.id } } })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return refetch();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete the token “${token.name}”`}
      action="Delete"
      pending={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>Requests with this token are rejected immediately.</p>
    </ConfirmDialog>
  );
}

/** Settings section of API tokens for scripts. */
export function TokensSection() {
  const isAdmin = useHasRole("admin");
  const tokens = useQuery({ queryKey: KEY, queryFn: () => unwrap(api.GET("/api/v1/tokens")), enabled: isAdmin });
  const [deleting, setDeleting] = useState<Schemas["ApiToken"] | null>(null);
  return (
    <section className="card">
      <h2>
        API tokens <small>for scripts; a token's text is shown once</small>
      </h2>
      <p className="body muted">
        <a href="/docs">All operations of the API</a>, to read and to try out.
      </p>
      {!isAdmin ? (
        <p className="body muted">Managing API tokens needs the admin role.</p>
      ) : (
        <>
          <div className="body">
            <NewToken />
          </div>
          <RowsTable
            rows={tokens}
            label="API tokens"
            columns={["purpose", "role", "created by", "created", "last used", "expires"]}
          >
            {(token) => (
              <tr>
                <td>{token.name}</td>
                <td>
                  {token.role} <span className="muted">{labelsText(token.role_labels)}</span>
                </td>
                <td>{token.created_by}</td>
                <td>
                  <Moment at={token.created_at} />
                </td>
                <td>
                  <Moment at={token.last_used_at} />
                </td>
                <td>
                  <Moment at={token.expires_at} />
                </td>
                <td>
                  <Button onClick={() => setDeleting(token)} aria-label={`Delete token ${token.name}`}>
                    Delete
                  </Button>
                </td>
              </tr>
            )}
          </RowsTable>
        </>
      )}
      {deleting !== null && <Delete token={deleting} onClose={() => setDeleting(null)} />}
    </section>
  );
}
