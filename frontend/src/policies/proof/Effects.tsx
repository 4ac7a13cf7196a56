import type { ReactNode } from "react";
import { Scroll } from "../../components/Scroll";
import { Unknown } from "../../components/Unknown";
import { effectScale } from "../../experiments/results/axisScale";
import { Track, TrackScale } from "../../experiments/results/EffectRuler";
import type { Interval } from "../../experiments/types";
import { FINDINGS, NO_INTERVAL, provenText } from "./findings";
import styles from "./proof.module.css";
import type { Finding, ProvenEffect } from "./types";

/** limit: what the metric must not do, in rows of guardrails. */
export type Row = {
  name: string;
  tag: string | undefined;
  limit?: string;
  finding: Finding;
  effect: ProvenEffect | null;
  sentence: string;
};
type Props = { title: string; note: string; first: string; rows: Row[]; empty?: string; children?: ReactNode };

/** Effects of one version as rows: estimate and interval on a common scale, and finding; the sentence as tooltip. */
export function Effects({ title, note, first, rows, empty = "No figures yet.", children }: Props) {
  const scale = effectScale(rows.map(({ effect }) => intervalOf(effect)));
  return (
    <section className="card" aria-label={title}>
      <h2 className={styles.wrapping}>
        {title} <small>{note}</small>
        <span className="grow" />
        {children}
      </h2>
      {rows.length === 0 ? (
        <p className="body muted">{empty}</p>
      ) : (
        <Scroll label={`${title}, table`}>
          <table className="table">
            <thead>
              <tr>
                <th>{first}</th>
                <th className={styles.drawn}>
                  <TrackScale scale={scale} />
                </th>
                <th>effect, interval</th>
                <th>finding</th>
              </tr>
            </thead>
            <tbody>
              {rows.map(({ name, tag, limit, finding, effect, sentence }) => (
                <tr key={name} title={sentence}>
                  <td className={`wrap ${styles.name}`}>
                    {name} {tag !== undefined && <span className="tag">{tag}</span>}
                    {limit !== undefined && limit !== "" && <small className={styles.limit}>{limit}</small>}
                  </td>
                  <td className={`${styles.drawn} ${styles[finding] ?? ""}`}>
                    <Track scale={scale} effect={intervalOf(effect)} noise={null} />
                  </td>
                  <td className={styles.figure}>
                    {effect === null ? <Unknown why={sentence} /> : <Effect effect={effect} finding={finding} />}
                  </td>
                  <td className={`wrap ${styles.figure}`}>
                    <b className={FINDINGS[finding].tone}>{FINDINGS[finding].words}</b>
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}

/** An effect in the color of its finding; hatched where its interval is unknown. */
export function Effect({ effect, finding }: { effect: ProvenEffect; finding: Finding }) {
  return (
    <>
      <span className={FINDINGS[finding].tone}>{provenText(effect)}</span>{" "}
      {effect.low === null && <Unknown why={NO_INTERVAL} />}
    </>
  );
}

/** The interval of an effect; null without one. */
function intervalOf(effect: ProvenEffect | null): Interval | null {
  if (effect === null || effect.low === null || effect.high === null) return null;
  return { value: effect.estimate, low: effect.low, high: effect.high };
}
