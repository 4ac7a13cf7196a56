import { Button, Modal, TextInput } from "@mantine/core";
import { type FormEvent, type ReactNode, useState } from "react";
import { errorMessage } from "../api/client";
import styles from "../settings/settings.module.css";

/** Dialog before an irreversible action. typed: text that must be entered first. */
export function ConfirmDialog({
  title,
  action,
  typed,
  pending,
  error,
  onConfirm,
  onClose,
  children,
}: {
  title: string;
  action: string;
  typed?: string;
  pending: boolean;
  error: unknown;
  onConfirm: () => void;
  onClose: () => void;
  children: ReactNode;
}) {
  const [entered, setEntered] = useState("");
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onConfirm();
  };
  return (
    <Modal opened onClose={onClose} title={title} closeButtonProps={{ "aria-label": "Close" }}>
      <form className={styles.dialog} onSubmit={submit}>
        {children}
        {typed !== undefined && (
          <TextInput
            label={`Type ${typed} to confirm`}
            data-autofocus
            autoComplete="off"
            value={entered}
            onChange={(event) => setEntered(event.currentTarget.value)}
          />
        )}
        {error !== null && (
          <p className="bad" role="alert">
            {errorMessage(error)}
          </p>
        )}
        <div className={styles.buttons}>
          <Button onClick={onClose}>Cancel</Button>
          <Button
            type="submit"
            variant="filled"
            color="var(--bad)"
            disabled={typed !== undefined && entered !== typed}
            loading={pending}
          >
            {action}
          </Button>
        </div>
      </form>
    </Modal>
  );
}
