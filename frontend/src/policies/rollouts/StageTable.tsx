import type { Schemas } from "../../api/client";
import { Scroll } from "../../components/Scroll";
import { countdown, significant } from "../../lib/format";
import { useRemaining } from "../../shell/ChangeBanner";
import styles from "../policies.module.css";
import type { Rollout } from "../types";
import { stagesOf } from "./rolloutStages";

type Figure = Schemas["StageFigure"];
const MOST_METRICS = 3;
const TONES: Partial<Record<Figure["verdict"], string>> = { improves: "ok", worsens: "bad" };

/** The stages of a rollout: nodes, progress, and figures before and after. */
export function StageTable({ rollout }: { rollout: Rollout }) {
  const stages = stagesOf(rollout);
  const figuresOf = (index: number) => rollout.evidence.find((one) => one.stage === index)?.figures ?? [];
  const metrics = (rollout.evidence[0]?.figures ?? []).slice(0, MOST_METRICS);
  const [primary] = metrics;
  const remaining = useRemaining(rollout);
  return (
    <Scroll label="Stages">
      <table className="table">
        <thead>
          <tr>
            <th>stage</th>
            <th className="n">nodes</th>
            <th>progress</th>
            {metrics.map(({ metric, label, unit }) => (
              <th key={metric} className="n">
                {unit === "" ? label : `${label}, ${unit}`}
              </th>
            ))}
            {primary !== undefined && <th className="n">vs waiting</th>}
            <th>result</th>
          </tr>
        </thead>
        <tbody>
          {stages.map((stage, index) => {
            const figures = figuresOf(index);
            const of = (metric: string) => figures.find((one) => one.metric === metric);
            const effect = primary === undefined ? null : (of(primary.metric)?.effect ?? null);
            const present = stage.state === "in progress";
            const share =
              present && remaining !== null ? 1 - remaining / Math.max(1, rollout.wait_s) : stageShare(stage.state);
            return (
              <tr key={stage.label} aria-current={present ? "step" : undefined} className={styles.stage}>
                <td>
                  <b>{index + 1}</b> {stage.label}
                </td>
                <td className="n">{stage.nodes.length.toLocaleString("en")}</td>
                <td>
                  <progress max={1} value={share} aria-label={`Progress of ${stage.label}`} />
                </td>
                {metrics.map(({ metric }) => (
                  <td key={metric} className="n">
                    <BeforeAfter figure={of(metric)} />
                  </td>
                ))}
                {primary !== undefined && (
                  <td className="n">
                    {effect === null ? "–" : `${effect < 0 ? "−" : "+"}${significant(Math.abs(100 * effect))} %`}
                  </td>
                )}
                <td className={stage.tone}>
                  {stage.state}
                  {present && remaining !== null && remaining > 0 && `, ${countdown(remaining)} left`}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}

const stageShare = (state: string): number => (state.startsWith("passed") || state === "updated" ? 1 : 0);

function BeforeAfter({ figure }: { figure: Figure | undefined }) {
  if (figure === undefined) return <>–</>;
  return (
    <>
      <span className="muted">{significant(figure.before)} →</span>{" "}
      <b className={TONES[figure.verdict]}>{significant(figure.after)}</b>
    </>
  );
}
