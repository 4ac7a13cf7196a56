import type { ReactNode } from "react";
import layoutStyles from "../../policies/policies.module.css";

export function FormPart({ title, note, children }: { title: string; note?: string | undefined; children: ReactNode }) {
  return (
    <section className="card" aria-label={title}>
      <h2>
        {title} <small>{note}</small>
      </h2>
      <div className={`body ${layoutStyles.fields}`}>{children}</div>
    </section>
  );
}
