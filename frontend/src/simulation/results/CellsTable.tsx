import { Scroll } from "../../components/Scroll";
import { intervalText, seconds, shareText } from "../format";
import type { CellSummary } from "../types";
import { PART_LABELS, PARTS } from "./charted";
import styles from "./results.module.css";

/** Every cell of a study: response time and shares of system time. */
export function CellsTable({ cells }: { cells: CellSummary[] }) {
  return (
    <Scroll label="Every cell, table">
      <table className={`table ${styles.cells}`}>
        <thead>
          <tr>
            <th>pattern</th>
            <th>workload</th>
            <th className="n">v</th>
            <th>scheme</th>
            <th className="n">response time</th>
            <th className="n">95 % interval</th>
            {PARTS.map((part) => (
              <th key={part} className="n">
                {PART_LABELS[part]}
              </th>
            ))}
            <th className="n">switches</th>
            <th className="n">messages</th>
            <th className="n">seeds</th>
          </tr>
        </thead>
        <tbody>
          {cells.map((one) => {
            const { scheme, pattern, job_type, imbalance } = one.cell;
            return (
              <tr key={`${pattern} ${job_type} ${imbalance} ${scheme}`}>
                <td>{pattern.toUpperCase()}</td>
                <td>{job_type.toUpperCase()}</td>
                <td className="n">{imbalance}</td>
                <th scope="row">{scheme}</th>
                <td className="n">{seconds(one.response_s)}</td>
                <td className="n">{intervalText(one)}</td>
                {PARTS.map((part) => (
                  <td key={part} className="n">
                    {shareText(one.shares[part])}
                  </td>
                ))}
                <td className="n">{Math.round(one.switches).toLocaleString("en")}</td>
                <td className="n">{Math.round(one.messages).toLocaleString("en")}</td>
                <td className="n">{one.seeds}</td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
