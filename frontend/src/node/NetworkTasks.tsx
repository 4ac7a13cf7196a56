import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useMemo, useRef, useState } from "react";
import { sentenceOf } from "../api/client";
import { bitRate, count, duration, percent, text } from "../lib/format";
import { clock } from "../lib/time";
import { flowsQuery } from "../policies/queries";
import { Scroll } from "../shell/Scroll";
import { chainOf, howFound, inKeptOrder, type Link, localityOf, placesOf } from "./chain";
import classes from "./node.module.css";
import { Select } from "./panel/Panel";
import type { NodeView } from "./view";

const SHOWN = 12;
/** A line's height: as many as there were keep their room, so that what is below stands still. */
const ROW_PX = 25;
const RESORT_MS = 10_000;

/** From task to memory: which way each task's packets come, and where a hop leaves the cache or the NUMA node. */
export function NetworkTasks({ view }: { view: NodeView }) {
  const { node, topology, inventory } = view;
  const flows = useQuery(flowsQuery(node.id));
  const places = useMemo(() => placesOf(topology), [topology]);
  const links = useMemo(
    () => (flows.data === undefined ? [] : chainOf(flows.data.tasks, places, inventory)),
    [flows.data, places, inventory],
  );
  const ordered = useKeptOrder(links);
  const [shown, setShown] = useState(SHOWN);
  const most = useRef(0);
  const sight = ordered.slice(0, shown);
  most.current = Math.max(most.current, sight.length);
  const at = flows.data?.at ?? null;
  return (
    <section className="card" aria-labelledby="tasks-heading">
      <h2 className={classes.wrap}>
        <span id="tasks-heading">Network tasks</span>
        <small>from task to memory; {at === null ? "not told yet" : `as of ${clock(Date.parse(at))}`}</small>
        {flows.data !== undefined && at !== null && (
          <span
            className={`tag ${flows.data.exact ? "ok" : ""}`}
            title={
              flows.data.exact
                ? "Counted by eBPF, every protocol"
                : "Bytes come from the kernel's TCP sockets; what goes over UDP is not known"
            }
          >
            {flows.data.exact ? "exact, with UDP" : "TCP only"}
          </span>
        )}
        <span className="grow" />
        <Locality links={links} />
      </h2>
      {flows.isError ? (
        <p className={`bad ${classes.note}`} role="alert">
          {sentenceOf(flows.error)}
        </p>
      ) : flows.data === undefined || at === null ? (
        <div className={`hatched ${classes.noTasks}`}>
          <span>{flows.data === undefined ? "Reading the tasks." : "The agent has not told of any task yet."}</span>
        </div>
      ) : ordered.length === 0 ? (
        <p className={classes.note}>
          No process talks over the network{flows.data.exact ? "" : " by TCP; UDP is not known here"}.
        </p>
      ) : (
        <div style={{ minHeight: ROW_PX * (most.current + 1) }}>
          <Scroll label="Ways of the tasks">
            <table className={`table ${classes.chain}`}>
              <thead>
                <tr>
                  <th>task</th>
                  <th className="n">sockets</th>
                  <th>queue</th>
                  <th>IRQ</th>
                  <th>softirq CPU</th>
                  <th>task's CPU and cache</th>
                  <th>NUMA node</th>
                  <th className="n">received</th>
                  <th className="n">sent</th>
                </tr>
              </thead>
              <tbody>
                {sight.map((link) => (
                  <Row key={link.key} view={view} link={link} />
                ))}
              </tbody>
            </table>
          </Scroll>
          <Reasons links={sight} />
          {ordered.length > shown && (
            <div className={classes.note}>
              <Button onClick={() => setShown(shown + 50)}>Show {Math.min(50, ordered.length - shown)} more</Button> of{" "}
              {count(ordered.length, "way")}
            </div>
          )}
        </div>
      )}
    </section>
  );
}

/** The lines in an order that holds still for a while, and for as long as somebody is in the table. */
function useKeptOrder(links: Link[]): Link[] {
  const order = useRef<{ at: number; keys: string[] }>({ at: 0, keys: [] });
  return useMemo(() => {
    const still = document.querySelector(`.${classes.chain}:hover, .${classes.chain}:focus-within`) !== null;
    if (!still && Date.now() - order.current.at > RESORT_MS)
      order.current = { at: Date.now(), keys: links.map(({ key }) => key) };
    return inKeptOrder(links, order.current.keys);
  }, [links]);
}

function Locality({ links }: { links: Link[] }) {
  const shares = localityOf(links);
  if (shares === null) return null;
  return (
    <small title="Received bytes by whether the task's CPU shares a cache with the CPU that handles its packets">
      {shares.unknown < 1 && (
        <>
          near <b>{text(percent(100 * shares.near))}</b>
          {" · "}
          <span className={shares.wrong > 0 ? "bad" : undefined}>wrong side {text(percent(100 * shares.wrong))}</span>
          {shares.unknown > 0 && " · "}
        </>
      )}
      {shares.unknown > 0 && `unknown ${text(percent(100 * shares.unknown))}`}
    </small>
  );
}

function Unknown({ why }: { why: string | undefined }) {
  return (
    <span className={`hatched ${classes.unknown}`} title={why}>
      <span>unknown</span>
      <span className="visually-hidden">: {why}</span>
    </span>
  );
}

function Row({ view, link: { task, placement, hop, nodes, offNode, why } }: { view: NodeView; link: Link }) {
  const selected = view.search.sel;
  const cpu = (number: number, children: ReactNode) => (
    <Select view={view} sel={`cpu:${number}`}>
      {children}
    </Select>
  );
  const here = selected === `irq:${placement.irq}` || selected === `cpu:${placement.cpu}`;
  const facts = [
    task.bound ? "a kernel thread bound to its CPU" : `may run on CPUs ${task.affinity}`,
    count(task.threads, "thread"),
    `${text(percent(100 * task.cpu_share))} of a CPU`,
    task.idle_s >= 1 ? `silent for ${duration(task.idle_s)}` : "",
    task.cgroup ?? "",
  ];
  return (
    <tr data-selected={here || undefined}>
      <td title={facts.filter(Boolean).join(" · ")}>
        {cpu(task.cpu, task.name)} <span className="muted">{task.pid}</span>
      </td>
      <td className="n">{placement.sockets.toLocaleString("en")}</td>
      <td>
        {placement.netdev !== "" && (
          <Select view={view} sel={`nic:${placement.netdev}`}>
            {placement.queue === null ? placement.netdev : `${placement.netdev} ${placement.queue}`}
          </Select>
        )}{" "}
        {placement.queue === null && <Unknown why={why.queue} />}
      </td>
      <td>
        {placement.irq === null ? (
          <Unknown why={why.irq} />
        ) : (
          <Select view={view} sel={`irq:${placement.irq}`}>
            {placement.irq}
          </Select>
        )}
      </td>
      <td title={howFound(placement.how)}>
        {placement.cpu === null ? <Unknown why={why.cpu} /> : cpu(placement.cpu, `CPU ${placement.cpu}`)}
      </td>
      <td>
        {cpu(task.cpu, `CPU ${task.cpu}`)}{" "}
        {hop === null ? (
          <Unknown why={why.hop} />
        ) : (
          <span className={hop.wrong === null ? "ok" : `${classes.wrong} ${hop.wrong === "numa" ? "bad" : "warn"}`}>
            {hop.words}
          </span>
        )}
      </td>
      <td>
        <Nodes of={nodes} />
        {offNode && <span className={`${classes.wrong} warn`}>off the NIC's node</span>}
      </td>
      <td className="n">{text(bitRate(placement.rx_bytes_per_s))}</td>
      <td className="n">{text(bitRate(placement.tx_bytes_per_s))}</td>
    </tr>
  );
}

/** `0` where all is on one node, else who is where. */
function Nodes({ of: { nic, softirq, task } }: { of: Link["nodes"] }) {
  const known = [nic, softirq, task].filter((node) => node !== null);
  if (known.length === 0) return <Unknown why="The machine does not tell of NUMA nodes." />;
  if (new Set(known).size === 1) return <>{known[0]}</>;
  return (
    <span className={softirq !== null && softirq !== task ? "bad" : undefined}>
      {nic !== null && `NIC ${nic} → `}
      {softirq !== null && `softirq ${softirq} → `}
      task {task ?? "?"}{" "}
    </span>
  );
}

/** Why something is unknown, each reason once. */
function Reasons({ links }: { links: Link[] }) {
  const reasons = [...new Set(links.flatMap(({ why }) => Object.values(why)))];
  if (reasons.length === 0) return null;
  return (
    <p className={classes.reasons}>
      <span className={`hatched ${classes.unknown}`}>
        <span>unknown</span>
      </span>{" "}
      {reasons.join(" ")}
    </p>
  );
}
