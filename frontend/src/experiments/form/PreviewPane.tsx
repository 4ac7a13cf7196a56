import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { api, errorMessage, unwrap } from "../../api/client";
import { duration, formatCount } from "../../lib/format";
import layoutStyles from "../../policies/policies.module.css";
import experimentsStyles from "../experiments.module.css";
import type { Preview, SpecIn } from "../types";
import styles from "./form.module.css";

const TYPING_MS = 350;

/** old: whether the preview is of an earlier input. */
export type SpecPreview = { data: Preview | undefined; error: Error | null; old: boolean };

/** The preview of an experiment, requested shortly after the last input. */
export function useSpecPreview(spec: SpecIn | null): SpecPreview {
  const request = useMemo(() => JSON.stringify(spec), [spec]);
  const [settled] = useDebouncedValue(request, TYPING_MS);
  const preview = useQuery({
    queryKey: ["experiment-preview", settled],
    enabled: spec !== null && settled === request,
    placeholderData: keepPreviousData,
    staleTime: 0,
    gcTime: 0,
    queryFn: ({ signal }) =>
      unwrap(api.POST("/api/v1/experiments/preview", { body: { spec: JSON.parse(settled) }, signal })),
  });
  return { data: preview.data, error: preview.error, old: settled !== request || preview.isPlaceholderData };
}

type Props = { preview: SpecPreview; differs: string[]; fits: boolean };

/** Summary, number of runs, duration, warnings and the changes of each arm. */
export function PreviewPane({ preview: { data, error, old }, differs, fits }: Props) {
  return (
    <section className={`card ${layoutStyles.pane}`} aria-label="Preview">
      <h2>
        Preview <small>nothing is changed before the start</small>
        <span className="grow" />
        <small role="status">{fits && old ? "updating…" : ""}</small>
      </h2>
      <div className={`body ${experimentsStyles.preview}`} aria-live="polite" aria-busy={fits && old}>
        {!fits && <p className="muted">The preview resumes when all fields are valid.</p>}
        {error !== null && (
          <p className="bad" role="alert">
            {errorMessage(error)}
          </p>
        )}
        {data === undefined && error === null && fits && <div className={`hatched ${styles.waiting}`} />}
        {data !== undefined && (
          <>
            <p>
              <b>{data.sentence}</b>
            </p>
            <dl className={experimentsStyles.facts}>
              <dt>Runs</dt>
              <dd>{formatCount(data.runs, "run")}</dd>
              <dt>Duration</dt>
              <dd>about {duration(data.duration_s)}</dd>
            </dl>
            {data.blocked_because !== null && (
              <p className="bad" role="alert">
                It cannot be started: {data.blocked_because}
              </p>
            )}
            <Sentences title="Warnings" of={data.warnings} />
            <Sentences title="Differences from the paper" of={[...differs, ...data.deviations]} />
            <h3>Changes of each arm</h3>
            <ol className={styles.arms}>
              {data.arms.map((arm) => (
                <li key={arm.name}>
                  <b>{arm.name}</b> {arm.sentence}
                  {arm.commands.length > 0 && (
                    <details>
                      <summary>Shell commands</summary>
                      <pre className="mono">{arm.commands.join("\n")}</pre>
                    </details>
                  )}
                </li>
              ))}
            </ol>
          </>
        )}
      </div>
    </section>
  );
}

function Sentences({ title, of }: { title: string; of: string[] }) {
  if (of.length === 0) return null;
  return (
    <>
      <h3>{title}</h3>
      <ul>
        {of.map((sentence) => (
          <li key={sentence}>{sentence}</li>
        ))}
      </ul>
    </>
  );
}
