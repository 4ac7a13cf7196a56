import type { Schemas } from "../../api/client";
import { Unknown } from "../../components/Unknown";
import { formatCount, significant } from "../../lib/format";
import styles from "../policies.module.css";

type Figure = Schemas["StageFigure"];

const WORDS: Record<Figure["verdict"], { text: string; tone: string }> = {
  improves: { text: "better", tone: "ok" },
  worsens: { text: "worse", tone: "bad" },
  higher: { text: "higher", tone: "" },
  lower: { text: "lower", tone: "" },
  none_found: { text: "no effect found", tone: "muted" },
  too_few: { text: "no interval", tone: "muted" },
  not_compared: { text: "not compared", tone: "muted" },
};
const percent = (share: number): string => `${share < 0 ? "−" : "+"}${significant(Math.abs(100 * share))} %`;

/** The figures of a stage that has ended: one sentence, and a table of all metrics on demand. */
export function StageFigures({ evidence }: { evidence: Schemas["StageEvidence"] }) {
  if (evidence.figures.length === 0) return <p className={`muted ${styles.figures}`}>{evidence.sentence}</p>;
  return (
    <details className={styles.figures}>
      <summary>{evidence.sentence}</summary>
      <table className="table">
        <thead>
          <tr>
            <th>metric</th>
            <th className="n">before</th>
            <th className="n">after</th>
            <th className="n">change</th>
            <th className="n">of the waiting nodes</th>
            <th className="n">effect</th>
            <th>result</th>
          </tr>
        </thead>
        <tbody>
          {evidence.figures.map((figure) => (
            <Row key={figure.metric} figure={figure} />
          ))}
        </tbody>
      </table>
    </details>
  );
}

function Row({ figure }: { figure: Figure }) {
  const { label, unit, before, after, change, waiting_change, effect, low, high, verdict, sentence } = figure;
  return (
    <tr>
      <td>{unit === "" ? label : `${label}, ${unit}`}</td>
      <td className="n">{significant(before)}</td>
      <td className="n">{significant(after)}</td>
      <td className="n" title={formatCount(figure.nodes, "node")}>
        {percent(change)}
      </td>
      <td className="n" title={formatCount(figure.waiting_nodes, "node")}>
        {waiting_change === null ? <Unknown why={sentence} /> : percent(waiting_change)}
      </td>
      <td className="n">
        {effect === null ? <Unknown why={sentence} /> : percent(effect)}
        {low !== null && high !== null && ` [${percent(low)}, ${percent(high)}]`}
      </td>
      <td className={WORDS[verdict].tone}>{WORDS[verdict].text}</td>
    </tr>
  );
}
