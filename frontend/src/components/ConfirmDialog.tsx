import { Button, Modal, TextInput } from "@mantine/core";
import { type FormEvent, type ReactNode, useState } from "react";
import { errorMessage } from "../api/client";
import styles from "./dialog.module.css";
import { useFocusReturn } from "./useFocusReturn";

/** Dialog before an action with consequences, on a phone a sheet. typed: text that must be entered first. */
export function ConfirmDialog({
  title,
  action,
  typed,
  harmless = false,
  disabled = false,
  pending,
  error,
  onConfirm,
  onClose,
  children,
}: {
  title: string;
  action: string;
  typed?: string;
  /** Whether it begins something instead of ending it. */
  harmless?: boolean;
  /** Whether what was entered is incomplete. */
  disabled?: boolean;
  pending: boolean;
  error: unknown;
  onConfirm: () => void;
  onClose: () => void;
  children: ReactNode;
}) {
  const [entered, setEntered] = useState("");
  useFocusReturn();
  const submit = (event: FormEvent) => {
    event.preventDefault();
    onConfirm();
  };
  return (
    // zIndex: only a dialog that confirms covers the pending change
    <Modal
      opened
      onClose={onClose}
      title={title}
      closeButtonProps={{ "aria-label": "Close" }}
      zIndex={220}
      classNames={{ inner: styles.inner ?? "", content: styles.content ?? "" }}
    >
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
            {...(!harmless && { color: "var(--bad)" })}
            disabled={disabled || (typed !== undefined && entered !== typed)}
            loading={pending}
          >
            {action}
          </Button>
        </div>
      </form>
    </Modal>
  );
}
