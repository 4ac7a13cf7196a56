import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useRef, useState } from "react";
import { errorMessage } from "../../api/client";
import { ApplyPlan } from "../changes/ApplyPlan";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { numaOptionsQuery } from "../queries";
import type { Change } from "../types";
import {
  benefitText,
  type Desired,
  desiredOf,
  type MoveOption,
  pagesText,
  paysOff,
  placeText,
  savedText,
  undoOf,
  usefulOptions,
} from "./moveOptions";
import styles from "./numa.module.css";
import { factor, type NumaTask, whyUnknown } from "./numaTasks";

const SHOWN = 4;

type Props = { view: NodeView; task: NumaTask; latest: Change | undefined };
/** What is previewed. It stays while newer options arrive. */
type Chosen = { title: string; benefit: string | null; desired: Desired };

/** The moves of a process to other NUMA nodes with benefit and cost, and the undo of its last change; or the preview of one. */
export function MoveOptions({ view, task, latest }: Props) {
  const [chosen, setChosen] = useState<Chosen | null>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  const choose = (next: Chosen | null) => {
    setChosen(next);
    heading.current?.focus({ preventScroll: true }); // the button with the focus goes away
  };
  return (
    <>
      <h3 ref={heading} tabIndex={-1}>
        {chosen === null ? "Move" : chosen.title}
      </h3>
      {chosen === null ? (
        <Choice view={view} task={task} latest={latest} onChoose={choose} />
      ) : (
        <section className={styles.chosen} aria-label={chosen.title}>
          {chosen.benefit !== null && <p>{chosen.benefit}</p>}
          <ApplyPlan node={view.node} desired={chosen.desired} reason={`NUMA: ${chosen.title}`} />
          <Button onClick={() => choose(null)}>Back to the options</Button>
        </section>
      )}
    </>
  );
}

function Choice({ view, task, latest, onChoose }: Props & { onChoose: (chosen: Chosen) => void }) {
  const options = useQuery(numaOptionsQuery(view.node.id, task.pid));
  const [isLong, setLong] = useState(false);
  const useful = usefulOptions(options.data ?? [], task);
  const visible = isLong ? useful : useful.slice(0, SHOWN);
  const undo = latest === undefined ? null : undoOf(latest, task);
  return (
    <>
      {options.isError ? (
        <p className="bad" role="alert">
          {errorMessage(options.error)}
        </p>
      ) : useful.length === 0 ? (
        <p className="muted">{reasonForNone(options.data, task)}</p>
      ) : (
        <OptionTable pid={task.pid} options={visible} onChoose={onChoose} />
      )}
      <div className={nodeStyles.quick}>
        {useful.length > visible.length && (
          <Button onClick={() => setLong(true)}>Show {useful.length - visible.length} more</Button>
        )}
        {undo !== null && (
          <Button onClick={() => onChoose({ title: "Undo the last change", benefit: null, desired: undo })}>
            Undo the last change
          </Button>
        )}
      </div>
      <p className="muted">An undo moves as many pages back, but does not restore which page was where.</p>
    </>
  );
}

function reasonForNone(options: MoveOption[] | undefined, task: NumaTask): string {
  if (options === undefined) return "Loading options.";
  if (task.bytes_by_node === null || task.cpu_share === 0) return `Benefits cannot be predicted. ${whyUnknown(task)}`;
  return "It is already where it can be: there is no other node to move it to.";
}

type TableProps = { pid: number; options: MoveOption[]; onChoose: (chosen: Chosen) => void };

function OptionTable({ pid, options, onChoose }: TableProps) {
  return (
    <table className={`table ${styles.options}`}>
      <thead>
        <tr>
          <th>option</th>
          <th className="n" title="Predicted speed-up of this process">
            speed-up
          </th>
          <th className="n" title="CPU time that all processes together are predicted to save, in CPUs">
            CPUs saved
          </th>
          <th>
            <span className="visually-hidden">preview</span>
          </th>
        </tr>
      </thead>
      <tbody>
        {options.map((option, index) => {
          const [place, pages] = [placeText(option), pagesText(option)];
          const title = [place, pages].filter(Boolean).join(" ");
          const isBest = index === 0 && paysOff(option);
          return (
            <tr key={`${option.node} ${option.with_pages}`}>
              <td className="wrap">
                {place}
                {pages !== null && <small>…{pages}</small>}
              </td>
              <td className={`n ${paysOff(option) ? "" : "muted"}`}>{factor(option.speed_up)}</td>
              <td className={`n ${paysOff(option) ? "" : "muted"}`}>{savedText(option)}</td>
              <td className="n">
                <Button
                  variant={isBest ? "filled" : "default"}
                  aria-label={`Preview: ${title}`}
                  onClick={() => onChoose({ title, benefit: benefitText(option), desired: desiredOf(pid, option) })}
                >
                  Preview
                </Button>
              </td>
            </tr>
          );
        })}
      </tbody>
    </table>
  );
}
