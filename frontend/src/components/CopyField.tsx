import { Button } from "@mantine/core";
import { useClipboard } from "@mantine/hooks";
import type { ReactNode } from "react";
import styles from "../settings/settings.module.css";

/** A text with a copy button. */
export function CopyField({ text, label }: { text: string; label: string }) {
  const clipboard = useClipboard();
  return (
    <div className={styles.copy}>
      <code>{text}</code>
      <Button onClick={() => clipboard.copy(text)} aria-label={`Copy the ${label}`}>
        {clipboard.copied ? "Copied" : clipboard.error ? "Select and copy" : "Copy"}
      </Button>
    </div>
  );
}

/** A box for a secret that is shown only once. */
export function Secret({ children }: { children: ReactNode }) {
  return (
    <div className={styles.secret} role="status">
      {children}
    </div>
  );
}
