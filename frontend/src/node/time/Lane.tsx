import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo, useRef } from "react";
import { useWidth } from "../../charts/canvas";
import { experimentsQuery } from "../../experiments/queries";
import { dateTime } from "../../lib/time";
import { type NodeView, useFrames } from "../nodeView";
import { changesQuery } from "../queries";
import { placeMarks } from "./lane";
import styles from "./time.module.css";

/** The node's changes and decisions in the shown range, and the experiments as bars at the lane's lower edge. */
export function Lane({ view }: { view: NodeView }) {
  useFrames(view.window);
  const range = view.past ?? view.window.range();
  const box = useRef<HTMLDivElement>(null);
  const width = useWidth(box);
  const marks = useMemo(() => [...view.marks, ...view.policyMarks], [view.marks, view.policyMarks]);
  return (
    <div ref={box} className={styles.lane}>
      <Unlisted view={view} {...range} />
      <ol aria-label="Changes and decisions in this time range">
        {placeMarks(marks, range, width).map(({ at, marks: merged, label, side }) => (
          <li
            key={merged[0]?.key}
            data-kind={merged.every(({ kind }) => kind === "decision") ? "decision" : undefined}
            data-side={side}
            style={side === "left" ? { right: width - at } : { left: at }}
            title={merged.map((mark) => `${dateTime(mark.timeMs)} ${mark.label}`).join("\n")}
          >
            <span className={side === null ? "visually-hidden" : undefined}>{label}</span>
          </li>
        ))}
      </ol>
      <Experiments view={view} from={range.from} to={range.to} />
    </div>
  );
}

type PartProps = { view: NodeView; from: number; to: number };

const percentOf = (ms: number, { from, to }: PartProps) =>
  Math.min(100, Math.max(0, (100 * (ms - from)) / Math.max(1, to - from)));

/** The time before the oldest change that was read, where older ones have no marks. */
function Unlisted(props: PartProps) {
  const { node, stored } = props.view;
  const page = useQuery(changesQuery(node.id, stored)).data;
  const oldest = page?.changes.at(-1);
  if (page === undefined || page.older === null || oldest === undefined) return null;
  const until = Date.parse(oldest.created_at) + (node.clock_skew_ms ?? 0);
  const width = percentOf(until, props);
  if (width === 0) return null;
  const text = `Only the newest ${page.changes.length} changes have marks: since ${dateTime(until)}.`;
  return (
    <span className={`hatched ${styles.unlisted}`} style={{ width: `${width}%` }} title={text}>
      <span className="visually-hidden">{text}</span>
    </span>
  );
}

function Experiments(props: PartProps) {
  const { view } = props;
  const listed = useQuery(experimentsQuery({ node: view.node.id })).data?.experiments ?? [];
  const skewMs = view.node.clock_skew_ms ?? 0;
  return listed.map(({ id, name, started_at, ended_at }) => {
    if (started_at === null) return null;
    const left = percentOf(Date.parse(started_at) + skewMs, props);
    const right = ended_at === null ? 100 : percentOf(Date.parse(ended_at) + skewMs, props);
    if (right <= left) return null;
    const style = { left: `${left}%`, width: `${right - left}%` };
    return (
      <Link
        key={id}
        to="/experiments/$experimentId"
        params={{ experimentId: id }}
        className={styles.experiment}
        style={style}
        aria-label={`Experiment ${name}`}
        title={`Experiment ${name}`}
      />
    );
  });
}
