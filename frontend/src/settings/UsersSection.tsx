import { Button, NativeSelect, PasswordInput, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { handleSignedOut, queryClient } from "../api/queries";
import { USERNAME_HINT } from "../auth/Form";
import { useHasRole, useMe } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { FormError, fieldError } from "../components/FormError";
import { Moment } from "../components/Moment";
import { RowsTable } from "../components/RowsTable";
import { labelsText } from "../lib/labels";
import { RoleLabels } from "./RoleLabels";
import styles from "./settings.module.css";

const ROLES: Schemas["Role"][] = ["viewer", "operator", "admin"];
const KEY = ["users"];
const NEW: Schemas["UserCreate"] = { username: "", password: "", role: "viewer", role_labels: {} };
const refetch = () => queryClient.invalidateQueries({ queryKey: KEY });

function NewUser() {
  const [form, setForm] = useState(NEW);
  const create = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/users", { body: form })),
    onError: handleSignedOut,
    onSuccess: () => {
      setForm(NEW);
      return refetch();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate();
  };
  return (
    <form className={styles.form} onSubmit={submit}>
      <TextInput
        label="Name"
        required
        maxLength={BOUNDS.UserCreate.username.maxLength}
        pattern={BOUNDS.UserCreate.username.pattern}
        title={USERNAME_HINT}
        autoComplete="off"
        value={form.username}
        error={fieldError(create.error, "username")}
        onChange={(event) => setForm({ ...form, username: event.currentTarget.value })}
      />
      <PasswordInput
        label={`Password, at least ${BOUNDS.UserCreate.password.minLength} characters`}
        required
        minLength={BOUNDS.UserCreate.password.minLength}
        maxLength={BOUNDS.UserCreate.password.maxLength}
        autoComplete="new-password"
        w={220}
        value={form.password}
        error={fieldError(create.error, "password")}
        onChange={(event) => setForm({ ...form, password: event.currentTarget.value })}
      />
      <NativeSelect
        label="Role"
        data={ROLES}
        value={form.role}
        onChange={(event) => setForm({ ...form, role: event.currentTarget.value as Schemas["Role"], role_labels: {} })}
      />
      {form.role === "operator" && (
        <RoleLabels value={form.role_labels} onChange={(role_labels) => setForm({ ...form, role_labels })} />
      )}
      <Button type="submit" variant="filled" loading={create.isPending}>
        Add
      </Button>
      <FormError error={create.error} fields={["username", "password"]} />
    </form>
  );
}

function Delete({ user, onClose }: { user: Schemas["User"]; onClose: () => void }) {
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/users/{user_id}", { params: { path: { user_id: user.id } } })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return refetch();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete ${user.username}`}
      action="Delete"
      typed={user.username}
      pending={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>
        Sessions and API tokens of {user.username} end immediately. In history and audit log, “(deleted user {user.id}
        )” takes the place of the name.
      </p>
    </ConfirmDialog>
  );
}

const MEANING: Record<Schemas["Role"], string> = {
  viewer: "may read everything and change nothing",
  operator: "may change all nodes, until you enter labels for fewer",
  admin: "may change all nodes, and manage users, tokens and agents",
};

function useUpdate(user: Schemas["User"], onSuccess: () => void) {
  return useMutation({
    mutationFn: (body: Schemas["UserUpdate"]) =>
      unwrap(api.PATCH("/api/v1/users/{user_id}", { params: { path: { user_id: user.id } }, body })),
    onError: handleSignedOut,
    onSuccess: () => {
      onSuccess();
      return refetch();
    },
  });
}

const reach = (labels: Schemas["User"]["role_labels"]) => labelsText(labels) || "all nodes";

/** The nodes of which a user is operator. Others are stored only after a question: they may be more. */
function OperatorLabels({ user }: { user: Schemas["User"] }) {
  const [labels, setLabels] = useState(user.role_labels);
  const [isAsking, setAsking] = useState(false);
  const update = useUpdate(user, () => setAsking(false));
  const isEdited = reach(labels) !== reach(user.role_labels);
  return (
    <>
      <form
        className={styles.line}
        onSubmit={(event) => {
          event.preventDefault();
          update.reset();
          setAsking(isEdited);
        }}
      >
        <RoleLabels of={user.username} value={labels} disabled={user.issuer !== null} onChange={setLabels} />
        {isEdited && <Button type="submit">Save</Button>}
      </form>
      {isAsking && (
        <ConfirmDialog
          title={`Change the nodes of ${user.username}`}
          action="Change"
          pending={update.isPending}
          error={update.error}
          onConfirm={() => update.mutate({ role_labels: labels })}
          onClose={() => setAsking(false)}
        >
          <p>
            {user.username}, now operator of {reach(user.role_labels)}, becomes operator of {reach(labels)}.
          </p>
        </ConfirmDialog>
      )}
    </>
  );
}

function UserRow({ user, self }: { user: Schemas["User"]; self: boolean }) {
  const [isDeleting, setDeleting] = useState(false);
  const [role, setRole] = useState<Schemas["Role"] | null>(null);
  const update = useUpdate(user, () => setRole(null));
  return (
    <tr>
      <td>
        {user.username} {self && <span className="muted">you</span>}{" "}
        {user.issuer !== null && <span className="tag">{new URL(user.issuer).host}</span>}
      </td>
      <td>
        <NativeSelect
          aria-label={`Role of ${user.username}`}
          data={ROLES}
          value={user.role}
          disabled={user.issuer !== null}
          title={user.issuer === null ? undefined : "The role follows from the groups at the issuer."}
          onChange={(event) => {
            update.reset();
            setRole(event.currentTarget.value as Schemas["Role"]);
          }}
        />
        {role !== null && (
          <ConfirmDialog
            title={`Change the role of ${user.username}`}
            action={`Make ${role}`}
            pending={update.isPending}
            error={update.error}
            onConfirm={() => update.mutate({ role })}
            onClose={() => setRole(null)}
          >
            <p>
              {user.username}, now {user.role}, becomes {role}, and {MEANING[role]}.
            </p>
          </ConfirmDialog>
        )}
      </td>
      <td>{user.role === "operator" && <OperatorLabels key={labelsText(user.role_labels)} user={user} />}</td>
      <td className={user.disabled ? "warn" : ""}>{user.disabled ? "disabled" : "enabled"}</td>
      <td>
        <Moment at={user.last_login_at} />
      </td>
      <td>
        <Moment at={user.created_at} />
      </td>
      <td className="wrap">
        <Button
          loading={update.isPending}
          onClick={() => update.mutate({ disabled: !user.disabled })}
          aria-label={`${user.disabled ? "Enable" : "Disable"} ${user.username}`}
        >
          {user.disabled ? "Enable" : "Disable"}
        </Button>{" "}
        <Button onClick={() => setDeleting(true)} aria-label={`Delete ${user.username}`}>
          Delete
        </Button>
        {isDeleting && <Delete user={user} onClose={() => setDeleting(false)} />}
        {update.isError && role === null && (
          <div className="bad" role="alert">
            {errorMessage(update.error)}
          </div>
        )}
      </td>
    </tr>
  );
}

/** Settings section of users and their roles. */
export function UsersSection() {
  const isAdmin = useHasRole("admin");
  const me = useMe();
  const users = useQuery({ queryKey: KEY, queryFn: () => unwrap(api.GET("/api/v1/users")), enabled: isAdmin });
  return (
    <section className="card">
      <h2>
        Users{" "}
        <small>
          viewers read; operators also change nodes, all or those with labels; admins also manage users, tokens and
          agents
        </small>
      </h2>
      {!isAdmin ? (
        <p className="body muted">Managing users needs the admin role.</p>
      ) : (
        <>
          <div className="body">
            <NewUser />
          </div>
          <RowsTable
            rows={users}
            label="users"
            columns={["name", "role", "operator of", "state", "last signed in", "since"]}
          >
            {(user) => <UserRow user={user} self={user.username === me?.username} />}
          </RowsTable>
        </>
      )}
    </section>
  );
}
