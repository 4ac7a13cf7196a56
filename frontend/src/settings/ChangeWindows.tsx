import { Button, Checkbox, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useId, useState } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { changeWindowsQuery, handleSignedOut, queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { FormError, fieldError } from "../components/FormError";
import { Moment } from "../components/Moment";
import { RowsTable } from "../components/RowsTable";
import { formatCount } from "../lib/format";
import { labelsText } from "../lib/labels";
import { RoleLabels } from "./RoleLabels";
import styles from "./settings.module.css";
import { WEEKDAYS, windowTime } from "./windowTime";

type Window = Schemas["ChangeWindow"];
type Body = Schemas["ChangeWindowBody"];

const EMPTY: Body = {
  name: "",
  labels: {},
  zone: Intl.DateTimeFormat().resolvedOptions().timeZone,
  weekdays: [0, 1, 2, 3],
  start: "22:00",
  end: "05:00",
};
const refetch = () => queryClient.invalidateQueries({ queryKey: changeWindowsQuery.queryKey });

function NewWindow() {
  const [body, setBody] = useState(EMPTY);
  const [created, setCreated] = useState(0);
  const zones = useId();
  const create = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/change-windows", { body })),
    onError: handleSignedOut,
    onSuccess: () => {
      setBody({ ...body, name: "", labels: {} });
      setCreated(created + 1);
      return refetch();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    create.mutate();
  };
  const field = (name: "name" | "zone" | "start" | "end") => ({
    required: true,
    autoComplete: "off",
    value: body[name],
    error: fieldError(create.error, name),
    onChange: ({ currentTarget: { value } }: { currentTarget: { value: string } }) =>
      setBody({ ...body, [name]: value }),
  });
  return (
    <form className={styles.form} onSubmit={submit}>
      <TextInput
        label="Name"
        placeholder="databases at night"
        maxLength={BOUNDS.ChangeWindowBody.name.maxLength}
        w={200}
        {...field("name")}
      />
      <RoleLabels key={created} value={body.labels ?? {}} onChange={(labels) => setBody({ ...body, labels })} />
      <TextInput label="Time zone" list={zones} w={180} {...field("zone")} />
      <datalist id={zones}>
        {Intl.supportedValuesOf("timeZone").map((zone) => (
          <option key={zone} value={zone} />
        ))}
      </datalist>
      <TextInput label="Opens" type="time" w={110} {...field("start")} />
      <TextInput label="Closes" type="time" w={110} {...field("end")} />
      <Checkbox.Group
        label="Opens on"
        value={body.weekdays.map(String)}
        error={fieldError(create.error, "weekdays")}
        onChange={(days) => setBody({ ...body, weekdays: days.map(Number).sort() })}
      >
        <div className={styles.weekdays}>
          {WEEKDAYS.map((day, place) => (
            <Checkbox key={day} size="xs" value={String(place)} label={day} />
          ))}
        </div>
      </Checkbox.Group>
      <Button type="submit" variant="filled" disabled={body.weekdays.length === 0} loading={create.isPending}>
        Add
      </Button>
      <FormError error={create.error} fields={["name", "zone", "start", "end", "weekdays"]} />
    </form>
  );
}

function State({ window }: { window: Window }) {
  return (
    <>
      <span className={window.open ? "tag ok" : "tag"}>{window.open ? "open" : "closed"}</span>{" "}
      {window.changes_at !== null && (
        <span className="muted">
          {window.open ? "until" : "opens"} <Moment at={window.changes_at} />
        </span>
      )}
    </>
  );
}

function Delete({ window, onClose }: { window: Window; onClose: () => void }) {
  const remove = useMutation({
    mutationFn: () =>
      unwrap(api.DELETE("/api/v1/change-windows/{window_id}", { params: { path: { window_id: window.id } } })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return refetch();
    },
  });
  return (
    <ConfirmDialog
      title={`Delete the change window “${window.name}”`}
      action="Delete"
      pending={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>
        On those of its {formatCount(window.nodes, "node")} that have no other change window, policies write at all
        times.
      </p>
    </ConfirmDialog>
  );
}

/** Change windows: when policies may write on the nodes of labels. */
export function ChangeWindows() {
  const isAdmin = useHasRole("admin");
  const windows = useQuery(changeWindowsQuery);
  const [deleting, setDeleting] = useState<Window | null>(null);
  return (
    <section className="card">
      <h2>
        Change windows <small>outside of them policies write nothing and rollouts wait</small>
      </h2>
      <div className="body">
        {isAdmin ? <NewWindow /> : <p className="muted">Adding change windows needs the admin role.</p>}
      </div>
      <RowsTable
        rows={windows}
        label="change windows: policies may write at all times"
        columns={["name", "nodes with labels", "time", "now", "nodes", "waiting now"]}
        numeric={["nodes", "waiting now"]}
      >
        {(window) => (
          <tr>
            <td>{window.name}</td>
            <td className="mono">{labelsText(window.labels) || <span className="muted">all nodes</span>}</td>
            <td>
              {windowTime(window)} <span className="muted">{window.zone}</span>
            </td>
            <td>
              <State window={window} />
            </td>
            <td className="n">{window.nodes.toLocaleString("en")}</td>
            <td className="n">{window.held.toLocaleString("en")}</td>
            <td>
              {isAdmin && (
                <Button onClick={() => setDeleting(window)} aria-label={`Delete ${window.name}`}>
                  Delete
                </Button>
              )}
            </td>
          </tr>
        )}
      </RowsTable>
      {deleting !== null && <Delete window={deleting} onClose={() => setDeleting(null)} />}
    </section>
  );
}
