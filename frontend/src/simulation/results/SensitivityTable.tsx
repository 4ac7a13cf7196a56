import { Scroll } from "../../components/Scroll";
import { changeText, holdsText } from "../format";
import { parameterText } from "../studyForm";
import type { Study } from "../types";
import styles from "./results.module.css";

/** Whether the sign of reordering's effect on response time holds when assumed constants are halved and doubled. */
export function SensitivityTable({ study: { sensitivities, parameters } }: { study: Study }) {
  return (
    <Scroll label="Sensitivity, table">
      <table className="table">
        <thead>
          <tr>
            <th>constant</th>
            <th className="n">value</th>
            <th>scheme</th>
            <th className="n">effect of reordering</th>
            <th className="n">with the study's value</th>
            <th>sign of the effect</th>
          </tr>
        </thead>
        <tbody>
          {sensitivities.map((one) => {
            const parameter = parameters.find(({ name }) => name === one.parameter);
            return (
              <tr key={`${one.parameter} ${one.factor} ${one.scheme}`}>
                <td>{parameter?.label ?? one.parameter}</td>
                <td className="n">
                  {one.factor < 1 ? "halved" : "doubled"}: {parameterText(one.parameter, one.value)}
                </td>
                <td>{one.scheme}</td>
                <td className="n">{changeText(one.change)}</td>
                <td className="n">{changeText(one.base_change)}</td>
                <td className={`${styles.verdict} ${one.holds === one.of ? "ok" : "warn"}`}>
                  <span aria-hidden="true">{one.holds === one.of ? "✓" : "✗"}</span> {holdsText(one)}
                </td>
              </tr>
            );
          })}
        </tbody>
      </table>
    </Scroll>
  );
}
