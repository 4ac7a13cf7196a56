import experimentsStyles from "../../experiments/experiments.module.css";
import type { Study } from "../types";

/** The jobs and every parameter of a study. */
export function Facts({ study }: { study: Study }) {
  return (
    <section className="card" aria-label="Parameters">
      <h2>
        Parameters <small>the paper states none of these constants: defaults are assumptions</small>
      </h2>
      <div className="body">
        {study.jobs.map((sentence) => (
          <p key={sentence}>{sentence}</p>
        ))}
        <dl className={experimentsStyles.facts}>
          {study.parameters.map((parameter) => (
            <div key={parameter.name} title={parameter.help || undefined}>
              <dt>{parameter.label}</dt>
              <dd>{parameter.text}</dd>
            </div>
          ))}
        </dl>
      </div>
    </section>
  );
}
