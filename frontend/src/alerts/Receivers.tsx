import { Button, NativeSelect, PasswordInput, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { FormError, fieldError } from "../components/FormError";
import { RowsTable } from "../components/RowsTable";
import form from "../settings/settings.module.css";
import styles from "./alerts.module.css";
import { type Receiver, receiversQuery, refetchAlerts } from "./queries";

type Kind = Schemas["ReceiverKind"];
type Draft = { name: string; kind: Kind; url: string; secret: string; username: string; sender: string; to: string };

const KINDS: Record<Kind, { label: string; example: string; secret: string | null }> = {
  webhook: { label: "Webhook", example: "https://hooks.example/coresteer", secret: "Signing key" },
  slack: { label: "Slack-compatible", example: "https://hooks.slack.com/services/…", secret: null },
  email: { label: "E-mail", example: "smtp://mail.example:587", secret: "Password" },
  alertmanager: { label: "Alertmanager", example: "http://alertmanager.example:9093", secret: "Bearer token" },
};
const EMPTY: Draft = { name: "", kind: "webhook", url: "", secret: "", username: "", sender: "", to: "" };
const FIELDS = ["name", "url", "secret", "username", "sender", "recipients"];

function NewReceiver() {
  const [draft, setDraft] = useState(EMPTY);
  const { label, example, secret } = KINDS[draft.kind];
  const create = useMutation({
    mutationFn: ({ to, sender, ...rest }: Draft) =>
      unwrap(
        api.POST("/api/v1/alert-receivers", {
          body: {
            ...rest,
            sender: sender || null,
            recipients: to.split(/[\s,]+/).filter(Boolean),
            severity: "warning",
            enabled: true,
          },
        }),
      ),
    onError: handleSignedOut,
    onSuccess: () => {
      setDraft(EMPTY);
      return refetchAlerts();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate(draft);
  };
  const field = (name: keyof Draft, sent: string = name) => ({
    value: draft[name],
    autoComplete: "off",
    error: fieldError(create.error, sent),
    onChange: (event: { currentTarget: { value: string } }) =>
      setDraft({ ...draft, [name]: event.currentTarget.value }),
  });
  return (
    <form className={form.form} onSubmit={submit}>
      <TextInput label="Name" required maxLength={100} w={180} {...field("name")} />
      <NativeSelect
        label="Kind"
        data={Object.entries(KINDS).map(([value, kind]) => ({ value, label: kind.label }))}
        value={draft.kind}
        onChange={(event) =>
          setDraft({ ...EMPTY, name: draft.name, url: draft.url, kind: event.currentTarget.value as Kind })
        }
      />
      <TextInput label={`Address of ${label}`} placeholder={example} required w={320} {...field("url")} />
      {draft.kind === "email" && (
        <>
          <TextInput label="From" placeholder="coresteer@example.org" required w={200} {...field("sender")} />
          <TextInput label="To" placeholder="ops@example.org" required w={240} {...field("to", "recipients")} />
          <TextInput label="User name" w={160} {...field("username")} />
        </>
      )}
      {secret !== null && <PasswordInput label={secret} w={200} {...field("secret")} />}
      <Button type="submit" variant="filled" loading={create.isPending}>
        Add
      </Button>
      <FormError error={create.error} fields={FIELDS} />
    </form>
  );
}

/** Sends a test notification and says what came of it. */
function Test({ receiver }: { receiver: Receiver }) {
  const test = useMutation({
    mutationFn: () =>
      unwrap(
        api.POST("/api/v1/alert-receivers/{receiver_id}/test", { params: { path: { receiver_id: receiver.id } } }),
      ),
    onError: handleSignedOut,
  });
  return (
    <div role="status">
      <Button onClick={() => test.mutate()} loading={test.isPending} aria-label={`Test ${receiver.name}`}>
        Test
      </Button>
      {test.isError && <p className="bad">{errorMessage(test.error)}</p>}
      {test.data !== undefined && <p className={test.data.delivered ? "ok" : "bad"}>{test.data.outcome}</p>}
    </div>
  );
}

function Delete({ receiver, onClose }: { receiver: Receiver; onClose: () => void }) {
  const remove = useMutation({
    mutationFn: () =>
      unwrap(api.DELETE("/api/v1/alert-receivers/{receiver_id}", { params: { path: { receiver_id: receiver.id } } })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return refetchAlerts();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete the receiver “${receiver.name}”`}
      action="Delete"
      pending={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>What waits to be sent to it is deleted, too.</p>
    </ConfirmDialog>
  );
}

/** Receivers of alerts: who is told, and a test of each. */
export function Receivers() {
  const isAdmin = useHasRole("admin");
  const receivers = useQuery(receiversQuery);
  const [deleting, setDeleting] = useState<Receiver | null>(null);
  return (
    <section className="card">
      <h2>
        Receivers <small>one notification for all alerts of a rule</small>
      </h2>
      <div className="body">
        {isAdmin ? <NewReceiver /> : <p className="muted">Adding receivers needs the admin role.</p>}
      </div>
      <RowsTable rows={receivers} label="receivers" columns={["name", "kind", "address", "secret", "test"]}>
        {(receiver) => (
          <tr>
            <td>{receiver.name}</td>
            <td>{KINDS[receiver.kind].label}</td>
            <td>
              <code>{receiver.url}</code>
              {receiver.recipients.length > 0 && <p className="muted">to {receiver.recipients.join(", ")}</p>}
            </td>
            <td className="muted">{receiver.has_secret ? "stored" : "none"}</td>
            <td>{isAdmin && <Test receiver={receiver} />}</td>
            <td>
              {isAdmin && (
                <div className={styles.buttons}>
                  <Button onClick={() => setDeleting(receiver)} aria-label={`Delete ${receiver.name}`}>
                    Delete
                  </Button>
                </div>
              )}
            </td>
          </tr>
        )}
      </RowsTable>
      {deleting !== null && <Delete receiver={deleting} onClose={() => setDeleting(null)} />}
    </section>
  );
}
