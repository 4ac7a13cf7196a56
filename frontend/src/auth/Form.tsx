import type { ReactNode } from "react";
import { Logo } from "../shell/icons";
import styles from "./auth.module.css";

/** Hint for input fields of user names. */
export const USERNAME_HINT = "Letters, digits and . _ @ -";

/** The frame of pages without a signed-in user. */
export function AuthFrame({ title, children }: { title: string; children: ReactNode }) {
  return (
    <main className={styles.frame}>
      <title>{`${title} · Coresteer`}</title>
      <section className={`card ${styles.card}`}>
        <h1>
          <span className={styles.logo}>
            <Logo />
          </span>
          {title}
        </h1>
        {children}
      </section>
    </main>
  );
}
