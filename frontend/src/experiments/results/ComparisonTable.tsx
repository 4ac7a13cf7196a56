import { useState } from "react";
import { Scroll } from "../../components/Scroll";
import { metricOf } from "../arms";
import { detectableText, effectText, effectWithInterval, figureText, pText } from "../format";
import type { Comparison, Experiment } from "../types";
import { effectScale } from "./axisScale";
import { Track, TrackScale } from "./EffectRuler";
import styles from "./results.module.css";
import { Verdict } from "./Verdict";

export type Row = { key: string; name: string; comparison: Comparison };
type Column = "name" | "effect" | "p";
type Props = {
  experiment: Experiment;
  label: string;
  first: string;
  rows: Row[];
  /** The row selected elsewhere on the page. */
  chosen?: string;
  onChoose?: (key: string) => void;
};

/** Unknown effects sort last. */
const sizeOf = ({ comparison: { effect } }: Row): number => (effect === null ? -1 : Math.abs(effect.value));

const SORTS: Record<Column, (a: Row, b: Row) => number> = {
  name: (a, b) => a.name.localeCompare(b.name, "en", { numeric: true }),
  effect: (a, b) => sizeOf(b) - sizeOf(a),
  p: (a, b) => (a.comparison.p ?? 2) - (b.comparison.p ?? 2),
};

/** One row per comparison: means, effect with its interval, and verdict. */
export function ComparisonTable({ experiment, label, first, rows, chosen, onChoose }: Props) {
  const [sort, setSort] = useState<Column | null>(null);
  const scale = effectScale(rows.map(({ comparison }) => comparison.effect));
  const shown = sort === null ? rows : rows.toSorted(SORTS[sort]);
  const heading = (column: Column, words: string, right = false) => (
    <th
      className={right ? "n" : undefined}
      aria-sort={sort === column ? (column === "effect" ? "descending" : "ascending") : undefined}
    >
      <button type="button" className={styles.sort} onClick={() => setSort(sort === column ? null : column)}>
        {words} <span aria-hidden="true">{sort === column ? (column === "effect" ? "↓" : "↑") : "↕"}</span>
      </button>
    </th>
  );
  return (
    <Scroll label={label}>
      <table className={`table ${styles.comparisons}`}>
        <thead>
          <tr>
            {heading("name", first)}
            <th className="n">baseline</th>
            <th className="n">compared</th>
            <th className={styles.drawn}>
              <TrackScale scale={scale} />
            </th>
            {heading("effect", "effect, 95 % interval")}
            {heading("p", "p", true)}
            <th className="n" title="The smallest relative difference that would be detected with 80 % probability">
              detectable
            </th>
            <th>verdict</th>
          </tr>
        </thead>
        <tbody>
          {shown.map(({ key, name, comparison }) => {
            const { unit, better } = metricOf(experiment, comparison.metric);
            const noise = experiment.analysis.noise[comparison.metric]?.effect ?? null;
            const noiseBand = experiment.spec.kind === "aa" ? null : noise;
            return (
              <tr key={key} data-chosen={key === chosen || undefined}>
                <td>
                  {onChoose === undefined ? (
                    name
                  ) : (
                    <button
                      type="button"
                      className={styles.pick}
                      aria-pressed={key === chosen}
                      onClick={() => onChoose(key)}
                    >
                      {name}
                    </button>
                  )}
                </td>
                <td className="n">{figureText(comparison.baseline?.value, unit)}</td>
                <td className="n">{figureText(comparison.level?.value, unit)}</td>
                <td className={styles.drawn}>
                  <Track scale={scale} effect={comparison.effect} noise={noiseBand} />
                </td>
                <td>{effectWithInterval(comparison.effect)}</td>
                <td className="n">{pText(comparison.p)}</td>
                <td className="n">{detectableText(comparison.minimum_detectable)}</td>
                <td>
                  <Verdict verdict={comparison.verdict} better={better} />
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
      <p className={`muted ${styles.scaleNote}`}>
        All bars: change from {effectText(scale.low)} to {effectText(scale.high)}. An arrow: the interval goes on.
        {experiment.state !== "done" &&
          " Intervals and p hold for the planned number of blocks only: ending an experiment because of its result makes false positives more frequent."}
      </p>
    </Scroll>
  );
}
