import { Scroll } from "../../components/Scroll";
import { metricOf } from "../arms";
import { effectWithInterval, figureText } from "../format";
import type { Experiment, Published } from "../types";

/** This node's value for a published one: an effect, a mean, the range of several arms' means, or why there is none. */
function hereText(experiment: Experiment, row: Published): string {
  if (row.unmeasured_because !== null) return row.unmeasured_because;
  if (row.against !== "") return effectWithInterval(row.effect);
  const { unit } = metricOf(experiment, row.metric);
  const means = row.arms.flatMap((place) => experiment.analysis.means[row.metric]?.[place]?.value ?? []);
  if (means.length < 2) return figureText(means[0], unit);
  return `${figureText(Math.min(...means), unit)} to ${figureText(Math.max(...means), unit)}`;
}

/** A paper's published values beside the measured ones. */
export function AuthorsTable({
  rows,
  experiment,
  paper,
}: {
  rows: Published[];
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
            const { label } = metricOf(experiment, row.metric);
            return (
              <tr key={row.id} title={paper}>
                <td>{row.arm}</td>
                <td>{label}</td>
                <td className="wrap">{row.text}</td>
                <td className={row.unmeasured_because === null ? "n" : "wrap"}>{hereText(experiment, row)}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
