import { Button, Checkbox, Popover, TextInput } from "@mantine/core";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { meQuery } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { FormError, fieldError } from "../components/FormError";
import { fleetViewsQuery, searchOf, viewText } from "./savedViews";
import type { FleetSearch } from "./search";
import styles from "./views.module.css";

type View = Schemas["FleetView"];
type Props = { search: FleetSearch; onChoose: (search: FleetSearch) => void };

/** A menu of the saved views, which saves the shown one. */
export function ViewsMenu({ search, onChoose }: Props) {
  const [opened, setOpened] = useState(false);
  const [deleting, setDeleting] = useState<View | null>(null);
  const isAdmin = useHasRole("admin");
  const me = useQuery(meQuery).data;
  const { data: views, error } = useQuery(fleetViewsQuery);
  const now = viewText(search);
  const current = views?.find((view) => view.search === now && now !== "");
  return (
    <>
      <Popover opened={opened} onChange={setOpened} trapFocus position="bottom-end" width={340} withinPortal>
        <Popover.Target>
          <Button onClick={() => setOpened(!opened)} aria-expanded={opened}>
            {current === undefined ? "Views" : `View: ${current.name}`}
          </Button>
        </Popover.Target>
        <Popover.Dropdown className={styles.views}>
          {error !== null && (
            <p className="bad" role="alert">
              {errorMessage(error)}
            </p>
          )}
          {views?.length === 0 && <p className="muted">No view is saved yet.</p>}
          <ul aria-label="Saved views">
            {views?.map((view) => (
              <li key={view.id} aria-current={view === current || undefined}>
                <button
                  type="button"
                  className="link"
                  onClick={() => {
                    onChoose(searchOf(view.search, search));
                    setOpened(false);
                  }}
                >
                  {view.name}
                </button>
                {view.shared && <span className="tag">shared by {view.created_by}</span>}
                <span className="grow" />
                {(isAdmin || me?.username === view.created_by) && (
                  <button
                    type="button"
                    className="link"
                    aria-label={`Delete the view ${view.name}`}
                    onClick={() => {
                      setOpened(false); // a click in the dialog would close it
                      setDeleting(view);
                    }}
                  >
                    delete
                  </button>
                )}
              </li>
            ))}
          </ul>
          <SaveView text={now} />
        </Popover.Dropdown>
      </Popover>
      {deleting !== null && (
        <DeleteView
          view={deleting}
          onClose={() => {
            setDeleting(null);
            setOpened(true); // the focus returns there
          }}
        />
      )}
    </>
  );
}

/** Asks before a view is deleted: its user's own, or for an administrator any. */
function DeleteView({ view: { id, name, shared }, onClose }: { view: View; onClose: () => void }) {
  const client = useQueryClient();
  const remove = useMutation({
    mutationFn: () => unwrap(api.DELETE("/api/v1/fleet-views/{view_id}", { params: { path: { view_id: id } } })),
    onSuccess: onClose,
    onSettled: () => client.invalidateQueries(fleetViewsQuery),
  });
  return (
    <ConfirmDialog
      title={`Delete the view ${name}`}
      action="Delete"
      pending={remove.isPending}
      error={remove.error}
      onConfirm={() => remove.mutate()}
      onClose={onClose}
    >
      <p>{shared ? "It is shared: everybody loses it." : "Only you have it."}</p>
    </ConfirmDialog>
  );
}

/** Saves the page's parameters under a name. */
function SaveView({ text }: { text: string }) {
  const client = useQueryClient();
  const mayShare = useHasRole("operator");
  const [name, setName] = useState("");
  const [shared, setShared] = useState(false);
  const save = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/fleet-views", { body: { name: name.trim(), search: text, shared } })),
    onSuccess: () => {
      setName("");
      return client.invalidateQueries(fleetViewsQuery);
    },
  });
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        save.mutate();
      }}
    >
      <TextInput
        label="Save what is shown as"
        description="filter, grouping, color, sort, columns and comparison; not the time"
        maxLength={60}
        value={name}
        error={fieldError(save.error, "name")}
        onChange={(event) => setName(event.currentTarget.value)}
      />
      {mayShare && (
        <Checkbox
          label="Share with everyone"
          checked={shared}
          onChange={(event) => setShared(event.currentTarget.checked)}
        />
      )}
      <FormError error={save.error} fields={["name"]} />
      <Button type="submit" variant="filled" loading={save.isPending} disabled={name.trim() === ""}>
        Save view
      </Button>
    </form>
  );
}
