import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { answer, api, sentenceOf } from "../api/client";
import { count, duration } from "../lib/format";
import layout from "../policies/policies.module.css";
import classes from "./experiments.module.css";
import type { Preview, SpecIn } from "./types";

const TYPING_MS = 350;

/** old: what is shown is of what was typed before. */
export type PreviewOf = { data: Preview | undefined; error: Error | null; old: boolean };

/** What an experiment would do, asked a moment after the last key. */
export function usePreviewOf(spec: SpecIn | null): PreviewOf {
  const asked = useMemo(() => JSON.stringify(spec), [spec]);
  const [settled] = useDebouncedValue(asked, TYPING_MS);
  const preview = useQuery({
    queryKey: ["experiment-preview", settled],
    enabled: spec !== null && settled === asked,
    placeholderData: keepPreviousData,
    staleTime: 0,
    gcTime: 0,
    queryFn: ({ signal }) =>
      answer(api.POST("/api/experiments/preview", { body: { spec: JSON.parse(settled) }, signal })),
  });
  return { data: preview.data, error: preview.error, old: settled !== asked || preview.isPlaceholderData };
}

type Props = { preview: PreviewOf; differs: string[]; fits: boolean };

/** One sentence, how many runs, how long, what each arm does to the node, and what is worth knowing first. */
export function PreviewPane({ preview: { data, error, old }, differs, fits }: Props) {
  return (
    <section className={`card ${layout.pane}`} aria-label="Preview">
      <h2>
        Preview <small>nothing is changed before it is started</small>
        <span className="grow" />
        <small role="status">{fits && old ? "looking…" : ""}</small>
      </h2>
      <div className={`body ${classes.preview}`} aria-live="polite" aria-busy={fits && old}>
        {!fits && <p className="muted">The preview goes on when everything in the form fits.</p>}
        {error !== null && (
          <p className="bad" role="alert">
            {sentenceOf(error)}
          </p>
        )}
        {data === undefined && error === null && fits && <div className={`hatched ${classes.waiting}`} />}
        {data !== undefined && (
          <>
            <p>
              <b>{data.sentence}</b>
            </p>
            <dl className={classes.facts}>
              <dt>Runs</dt>
              <dd>{count(data.runs, "run")}</dd>
              <dt>Takes</dt>
              <dd>about {duration(data.duration_s)}</dd>
            </dl>
            {data.blocked_because !== null && (
              <p className="bad" role="alert">
                It cannot be started: {data.blocked_because}
              </p>
            )}
            <Sentences title="Worth knowing first" of={data.warnings} />
            <Sentences title="How this machine differs from the paper's" of={differs} />
            <h3>What each arm does</h3>
            <ol className={classes.arms}>
              {data.arms.map((arm) => (
                <li key={arm.name}>
                  <b>{arm.name}</b> {arm.sentence}
                  {arm.commands.length > 0 && (
                    <details>
                      <summary>By hand</summary>
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
