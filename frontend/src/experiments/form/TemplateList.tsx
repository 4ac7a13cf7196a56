import { Button } from "@mantine/core";
import type { Template } from "../types";
import styles from "./form.module.css";

type Props = {
  templates: Template[] | undefined;
  chosen: string | undefined;
  /** Whether each card takes only one line, because a template is chosen. */
  folded: boolean;
  onChoose: (slug: string) => void;
};

/** The experiment templates for a node, and an empty form. */
export function TemplateList({ templates, chosen, folded, onChoose }: Props) {
  return (
    <section aria-label="Templates" className={styles.templates} data-folded={folded || undefined}>
      {templates === undefined &&
        ["a", "b", "c"].map((key) => <div key={key} className={`card hatched ${styles.template}`} />)}
      {templates?.map((one) => (
        <article key={one.slug} className={`card ${styles.template}`} data-chosen={one.slug === chosen || undefined}>
          <h2>{one.title}</h2>
          <div className="body">
            {one.paper !== "" && <p className="muted">{one.paper}</p>}
            <p>{one.explains}</p>
            {one.differs.length + one.deviations.length > 0 && (
              <details>
                <summary>How this machine differs</summary>
                <ul>
                  {[...one.differs, ...one.deviations].map((sentence) => (
                    <li key={sentence}>{sentence}</li>
                  ))}
                </ul>
              </details>
            )}
            {one.unavailable_because !== null && <p className="warn">Unavailable: {one.unavailable_because}</p>}
          </div>
          <div className={styles.choose}>
            <Button
              disabled={one.spec === null}
              aria-pressed={one.slug === chosen}
              aria-label={`${one.slug === chosen ? "Chosen" : "Use"}: ${one.title}`}
              onClick={() => onChoose(one.slug)}
            >
              {one.slug === chosen ? "Chosen" : "Use"}
            </Button>
          </div>
        </article>
      ))}
      <article className={`card ${styles.template}`} data-chosen={chosen === "own" || undefined}>
        <h2>Custom experiment</h2>
        <div className="body">
          <p>
            An A/A test of the node, a comparison of two levels, or a sweep over one or two factors, with a generated
            workload or existing traffic.
          </p>
        </div>
        <div className={styles.choose}>
          <Button
            aria-pressed={chosen === "own"}
            aria-label={`${chosen === "own" ? "Chosen" : "Use"}: custom experiment`}
            onClick={() => onChoose("own")}
          >
            {chosen === "own" ? "Chosen" : "Use"}
          </Button>
        </div>
      </article>
    </section>
  );
}
