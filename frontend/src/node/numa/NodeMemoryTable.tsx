import { Fragment } from "react";
import { Scroll } from "../../components/Scroll";
import { Unknown } from "../../components/Unknown";
import { bytes, formatFigure, percent, perSecond } from "../../lib/format";
import type { Topology } from "../types";
import { NodeLabel } from "./MemoryBar";
import styles from "./numa.module.css";
import { type MemoryPart, memoryParts, type NodeMemory, performanceText } from "./numaTasks";
import { memoryTraffic, type NodeTraffic } from "./traffic";

const KINDS: Record<MemoryPart["kind"], string> = {
  anon: "programs",
  file: "page cache",
  other: "kernel",
  unknown: "unknown",
  free: "free",
};
const NOT_REPORTED = "The agent has not reported it.";

type Props = {
  nodes: Topology["numa_nodes"];
  memory: NodeMemory[];
  traffic: NodeTraffic[];
  trafficUnknown: string | null;
};

/** A row per NUMA node: CPUs, memory by kind, local and remote allocations, and bandwidth. */
export function NodeMemoryTable({ nodes, memory, traffic, trafficUnknown }: Props) {
  return (
    <div className={styles.memory}>
      <Scroll label="NUMA nodes">
        <table className="table">
          <thead>
            <tr>
              <th>node, CPUs</th>
              <th>memory</th>
              <th className="n">used</th>
              <th className="n">free</th>
              <th className="n" title="Pages allocated on this node by its own CPUs (numastat local_node)">
                local
              </th>
              <th className="n" title="Pages allocated on this node by CPUs of other nodes (numastat other_node)">
                remote
              </th>
              <th className="n" title="Traffic of this node's memory, of what it can transfer (HMAT)">
                bandwidth
              </th>
            </tr>
          </thead>
          <tbody>
            {nodes.map(({ id, cpus }) => (
              <Row
                key={id}
                id={id}
                cpus={cpus}
                memory={memory.find(({ node }) => node === id)}
                traffic={memoryTraffic(traffic, id)}
                why={trafficUnknown}
              />
            ))}
          </tbody>
        </table>
      </Scroll>
      <p className={styles.legend}>
        {(["anon", "file", "other", "free"] as const).map((kind) => (
          <span key={kind}>
            <i data-kind={kind} aria-hidden="true" /> {KINDS[kind]}
          </span>
        ))}
        <span>local, remote: pages allocated per second by CPUs of the node, of other nodes</span>
      </p>
    </div>
  );
}

type RowProps = {
  id: number;
  cpus: string;
  memory: NodeMemory | undefined;
  traffic: number | null;
  why: string | null;
};

function Row({ id, cpus, memory, traffic, why }: RowProps) {
  const total = memory?.total_bytes ?? null;
  const free = memory?.free_bytes ?? null;
  const figure = (text: string, known: number | null | undefined, reason = NOT_REPORTED) =>
    known === null || known === undefined ? <Unknown why={reason} /> : text;
  return (
    <tr>
      <th scope="row">
        <NodeLabel node={id} />{" "}
        <span className={`muted ${styles.cpus}`} title={`CPUs ${cpus}`}>
          {cpus === "" ? "no CPU" : <CpuList cpus={cpus} />}
        </span>
      </th>
      <td className={styles.kinds}>
        <Kinds parts={memory === undefined ? null : memoryParts(memory)} />
      </td>
      <td className="n">
        {figure(
          formatFigure(bytes(total === null || free === null ? null : total - free)),
          total === null ? null : free,
        )}
        {total !== null && <span className="muted"> of {formatFigure(bytes(total))}</span>}
      </td>
      <td className="n">{figure(formatFigure(bytes(free)), free)}</td>
      <td className="n">{figure(formatFigure(perSecond(memory?.local_pages_per_s)), memory?.local_pages_per_s)}</td>
      <td className="n">{figure(formatFigure(perSecond(memory?.remote_pages_per_s)), memory?.remote_pages_per_s)}</td>
      <td className="n">
        <Bandwidth memory={memory} traffic={traffic} why={why ?? NOT_REPORTED} />
      </td>
    </tr>
  );
}

/** A CPU list that breaks only after commas. */
function CpuList({ cpus }: { cpus: string }) {
  return cpus.split(",").map((range, index) => (
    <Fragment key={range}>
      {index > 0 && (
        <>
          ,<wbr />
        </>
      )}
      <span>{range}</span>
    </Fragment>
  ));
}

function Kinds({ parts }: { parts: MemoryPart[] | null }) {
  if (parts === null) return <Unknown why={NOT_REPORTED} />;
  const text = parts
    .map(
      ({ kind, bytes: size, share }) =>
        `${KINDS[kind]} ${formatFigure(bytes(size))} (${formatFigure(percent(100 * share))})`,
    )
    .join(", ");
  return (
    <span className={styles.bar} role="img" aria-label={text} title={text}>
      {parts.map(({ kind, share }) => (
        <i
          key={kind}
          data-kind={kind}
          className={kind === "unknown" ? "hatched" : undefined}
          style={{ flexGrow: share }}
        />
      ))}
    </span>
  );
}

function Bandwidth({ memory, traffic, why }: Pick<RowProps, "memory" | "traffic"> & { why: string }) {
  const most = memory?.bandwidth_bytes_per_s ?? null;
  return (
    <>
      {traffic === null ? <Unknown why={why} /> : `${formatFigure(bytes(traffic))}/s`}
      {most !== null && (
        <span className="muted" title={performanceText(memory)}>
          {" "}
          of {formatFigure(bytes(most))}/s
        </span>
      )}
    </>
  );
}
