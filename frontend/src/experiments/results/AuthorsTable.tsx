import { Scroll } from "../../components/Scroll";
import { armIndex, metricOf } from "../arms";
import { figureText } from "../format";
import type { Experiment, Template } from "../types";

/** A paper's published values beside the measured ones. */
export function AuthorsTable({
  rows,
  experiment,
  paper,
}: {
  rows: Template["published"];
  experiment: Experiment;
  paper: string;
}) {
  return (
    <Scroll label="The authors' figures, table">
      <table className="table">
        <thead>
          <tr>
            <th>the authors' figures</th>
            <th>of</th>
            <th>as printed</th>
            <th className="n">here</th>
          </tr>
        </thead>
        <tbody>
          {rows.map((row) => {
            const place = experiment.arms.indexOf(row.arm);
            const level = experiment.spec.factors[0]?.levels.findIndex(({ name }) => name === row.arm) ?? -1;
            const at = place >= 0 ? place : level < 0 ? -1 : armIndex(experiment, [level]);
            const { label, unit } = metricOf(experiment, row.metric);
            return (
              <tr key={`${row.arm} ${row.metric} ${row.text}`} title={paper}>
                <td>{row.arm}</td>
                <td>{label}</td>
                <td className="wrap">{row.text}</td>
                <td className="n">{figureText(experiment.analysis.means[row.metric]?.[at]?.value, unit)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
