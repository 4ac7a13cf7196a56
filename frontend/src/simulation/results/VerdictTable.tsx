import { Scroll } from "../../components/Scroll";
import { effectWithInterval } from "../../experiments/format";
import { intervalEnds, scaleOver } from "../../experiments/results/axisScale";
import { Track } from "../../experiments/results/EffectRuler";
import { changeText, placeText } from "../format";
import type { Effect, Verdict } from "../types";
import styles from "./results.module.css";
import { verdictMark } from "./verdictMark";

/** The authors' statements next to a study's own effects. */
export function VerdictTable({ verdicts }: { verdicts: Verdict[] }) {
  return (
    <>
      <Scroll label="The authors' statements, table">
        <table className="table">
          <thead>
            <tr>
              <th>the authors' statement</th>
              <th>verdict</th>
              <th className="n">theirs, at most</th>
              <th className="n">ours, at most</th>
            </tr>
          </thead>
          <tbody>
            {verdicts.map((verdict) => {
              const { tone, icon } = verdictMark(verdict);
              return (
                <tr key={verdict.statement.text}>
                  <td className={`wrap ${styles.statement}`}>{verdict.statement.text}</td>
                  <td className={`wrap ${styles.verdict} ${tone}`}>
                    <span aria-hidden="true">{icon}</span> {verdict.sentence}
                  </td>
                  <td className="n">{changeText(verdict.statement.change)}</td>
                  <td className="n">{changeText(verdict.best)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
      <div className="body">
        {verdicts
          .filter(({ effects }) => effects.length > 0)
          .map((verdict) => (
            <Effects key={verdict.statement.text} verdict={verdict} />
          ))}
      </div>
    </>
  );
}

/** The effects of all cells that a statement is about. */
function Effects({ verdict: { statement, effects: unsorted } }: { verdict: Verdict }) {
  const effects = unsorted.toSorted((a, b) => placeText(a.cell).localeCompare(placeText(b.cell), "en"));
  const intervals = effects.map(({ change, low, high }) => ({ value: change, low, high }));
  const scale = scaleOver(intervals.flatMap(intervalEnds), { zero: true });
  return (
    <details className={styles.effects}>
      <summary>
        {statement.text} <span className="muted">Change of {statement.metric} in each cell</span>
      </summary>
      <Scroll label={`${statement.text} Every cell, table`}>
        <table className="table">
          <thead>
            <tr>
              <th>cell</th>
              <th>compared</th>
              <th className={styles.drawn}>
                <span className="visually-hidden">change, chart</span>
              </th>
              <th>change, 95 % interval</th>
            </tr>
          </thead>
          <tbody>
            {effects.map((effect, place) => {
              const interval = intervals[place] ?? null;
              return (
                <tr key={`${placeText(effect.cell)} ${effect.cell.scheme}`}>
                  <td>{placeText(effect.cell)}</td>
                  <td>{comparedText(effect)}</td>
                  <td className={styles.drawn}>
                    <Track scale={scale} effect={interval} noise={null} />
                  </td>
                  <td>{effectWithInterval(interval)}</td>
                </tr>
              );
            })}
          </tbody>
        </table>
      </Scroll>
    </details>
  );
}

const comparedText = ({ cell, against }: Effect): string =>
  cell.scheme === against.scheme
    ? `${cell.scheme}, v ${cell.imbalance} against ${against.imbalance}`
    : `${cell.scheme} against ${against.scheme}`;
