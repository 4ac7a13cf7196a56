import { effectText, effectWithInterval } from "../format";
import type { Comparison, Interval, Metric } from "../types";
import { intervalEnds, type Scale, scaleOver } from "./axisScale";
import styles from "./results.module.css";
import { Verdict } from "./Verdict";

type RulerRow = { name: string; comparison: Comparison };
type Props = { rows: RulerRow[]; noise: Interval | null; better: Metric["better"] };

const percent = (share: number) => `${100 * share}%`;

/** Effects with intervals on one ruler, with the A/A difference behind them. */
export function EffectRuler({ rows, noise, better }: Props) {
  const scale = scaleOver([
    0,
    ...rows.flatMap(({ comparison }) => intervalEnds(comparison.effect)),
    ...intervalEnds(noise),
  ]);
  return (
    <div className={styles.ruler}>
      <ul>
        {rows.map(({ name, comparison }) => (
          <li key={comparison.arm.join()} aria-label={name}>
            <span className={styles.rulerName}>{name}</span>
            <Track scale={scale} effect={comparison.effect} noise={noise} />
            <span>
              <b>{effectWithInterval(comparison.effect)}</b> <Verdict verdict={comparison.verdict} better={better} />
            </span>
          </li>
        ))}
      </ul>
      <div className={styles.rulerAxis} aria-hidden="true">
        <span />
        <div>
          {scale.ticks.map((tick) => (
            <span key={tick} style={{ left: percent(scale.at(tick)) }}>
              {effectText(tick)}
            </span>
          ))}
        </div>
        <span className="muted">
          {noise !== null && (
            <>
              <i className={styles.noiseKey} /> difference in the A/A runs
            </>
          )}
        </span>
      </div>
    </div>
  );
}

/** The heading of a column of tracks: the ends and the middle of their scale. */
export function TrackScale({ scale }: { scale: Scale }) {
  return (
    <>
      <span className="visually-hidden">effect, chart</span>
      <span className={styles.ends} aria-hidden="true">
        {scale.ticks.map((tick) => (
          <span key={tick}>{tick === 0 ? "0" : effectText(tick)}</span>
        ))}
      </span>
    </>
  );
}

type TrackProps = { scale: Scale; effect: Interval | null; noise: Interval | null };

/** A dot with a bar; an arrow where the interval goes on beyond the scale; hatched where the effect is unknown. */
export function Track({ scale, effect, noise }: TrackProps) {
  const span = ({ low, high }: Interval) => ({
    left: percent(scale.at(low)),
    width: percent(scale.at(high) - scale.at(low)),
  });
  return (
    <div className={`${styles.track} ${effect === null ? "hatched" : ""}`}>
      {noise !== null && <i className={styles.noise} style={span(noise)} />}
      <i className={styles.zero} style={{ left: percent(scale.at(0)) }} />
      {effect !== null && (
        <>
          <i className={styles.interval} style={span(effect)} />
          <i className={styles.estimate} style={{ left: percent(scale.at(effect.value)) }} />
          {effect.low < scale.low && <i className={`${styles.beyond} ${styles.below}`} />}
          {effect.high > scale.high && <i className={styles.beyond} />}
        </>
      )}
    </div>
  );
}
