import { Button } from "@mantine/core";
import { duration } from "../../lib/format";
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
  if (templates === undefined)
    return (
      <div className={styles.templates} aria-busy="true">
        {["a", "b", "c"].map((key) => (
          <div key={key} className={`card hatched ${styles.template}`} />
        ))}
      </div>
    );
  return (
    <section aria-label="Templates" className={styles.templates} data-folded={folded || undefined}>
      {templates.map((one) => (
        <article key={one.slug} className={`card ${styles.template}`} data-chosen={one.slug === chosen || undefined}>
          <h2>{one.title}</h2>
          <div className="body">
            <p className={styles.question}>{one.question}</p>
            <p className="muted">{one.explains}</p>
            <dl className={styles.facts}>
              {one.duration_s !== null && (
                <>
                  <dt>takes</dt>
                  <dd>about {duration(one.duration_s)}</dd>
                </>
              )}
              <dt>needs</dt>
              <dd>{one.needs}</dd>
              {one.paper !== "" && (
                <>
                  <dt>repeats</dt>
                  <dd>{one.paper}</dd>
                </>
              )}
            </dl>
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
          </div>
          <div className={styles.choose}>
            <Button
              disabled={one.spec === null}
              aria-describedby={one.unavailable_because === null ? undefined : `unavailable-${one.slug}`}
              aria-pressed={one.slug === chosen}
              aria-label={`${one.slug === chosen ? "Chosen" : "Use"}: ${one.title}`}
              onClick={() => onChoose(one.slug)}
            >
              {one.slug === chosen ? "Chosen" : "Use"}
            </Button>
            {one.unavailable_because !== null && (
              <p id={`unavailable-${one.slug}`} className="warn">
                Unavailable: {one.unavailable_because}
              </p>
            )}
          </div>
        </article>
      ))}
      <article className={`card ${styles.template}`} data-chosen={chosen === "own" || undefined}>
        <h2>Custom experiment</h2>
        <div className="body">
          <p className={styles.question}>Which of two settings, policies or placements is better here?</p>
          <p className="muted">
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
