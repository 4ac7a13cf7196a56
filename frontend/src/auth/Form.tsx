import type { ReactNode } from "react";
import { ApiProblem, sentenceOf } from "../api/client";
import { Logo } from "../shell/icons";
import styles from "./auth.module.css";

/** What a name may consist of, for an input. */
export const USERNAME = { pattern: "[A-Za-z0-9._@\\-]+", title: "Letters, digits and . _ @ -" };

/** The frame of the pages before somebody is signed in. */
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

/** What a form's request was refused for, unless every message already stands at its field. */
export function FormError({ error, fields }: { error: unknown; fields: string[] }) {
  if (error === null) return null;
  if (error instanceof ApiProblem && error.errors.length > 0 && fields.some((field) => error.field(field))) return null;
  return (
    <p className="bad" role="alert">
      {sentenceOf(error)}
    </p>
  );
}

/** The message for one field of a form, for an input's error property. */
export function fieldError(error: unknown, name: string): string | undefined {
  return error instanceof ApiProblem ? error.field(name) : undefined;
}
