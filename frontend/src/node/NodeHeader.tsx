import { Popover } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { HealthDot, SimulatedTag } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { formatCount, formatFigure, linkSpeed } from "../lib/format";
import { ago } from "../lib/time";
import styles from "./node.module.css";
import { type Warning, warningsOf } from "./warnings";

type Node = Schemas["Node"];

/** Drivers of the physical NICs with count and link speed: `igb ×2 · 1 Gbit/s`. */
export function driversOf(inventory: Node["inventory"]): string[] {
  const groups = new Map<string, number>();
  for (const netdev of inventory?.netdevs ?? []) {
    if (netdev.virtual || netdev.driver === null) continue;
    const speed = netdev.speed_bits_per_s === null ? "" : ` · ${formatFigure(linkSpeed(netdev.speed_bits_per_s))}`;
    const key = `${netdev.driver}|${speed.replace(/\.0+(?=\s)/, "")}`;
    groups.set(key, (groups.get(key) ?? 0) + 1);
  }
  return [...groups].map(([key, amount]) => {
    const [driver, speed] = key.split("|");
    return `${driver}${amount > 1 ? ` ×${amount}` : ""}${speed}`;
  });
}

/** The number of warnings, and on click what they say: the top bar has no room for many, and on a phone for none. */
function Warnings({ warnings }: { warnings: Warning[] }) {
  const count = formatCount(warnings.length, "warning");
  return (
    <Popover position="bottom-start" width="clamp(0px, 100vw - 24px, 480px)" withinPortal>
      <Popover.Target>
        <button type="button" className={`tag warn ${styles.warnings}`} aria-label={count} title={count}>
          <span aria-hidden="true">⚠ {warnings.length}</span>
        </button>
      </Popover.Target>
      <Popover.Dropdown>
        <dl className={styles.warningList}>
          {warnings.map(({ text, why, kind }) => (
            <div key={text}>
              <dt className={kind}>{text}</dt>
              <dd>{why}</dd>
            </div>
          ))}
        </dl>
      </Popover.Dropdown>
    </Popover>
  );
}

/** The node's name, health and facts in the top bar. */
export function NodeHeader({ node }: { node: Node }) {
  const { rack } = node.labels;
  const offline = node.topology?.cpus.filter((cpu) => !cpu.online).length ?? 0;
  const warnings = warningsOf(node);
  return (
    <PageTop title={node.name}>
      <nav aria-label="Breadcrumb">
        <Link to="/fleet">Fleet</Link> <span className="muted">/</span>
        {rack !== undefined && (
          <>
            {" "}
            <Link to="/fleet" search={{ q: `label:rack=${rack}` }}>
              {rack}
            </Link>{" "}
            <span className="muted">/</span>
          </>
        )}
      </nav>
      <h1>
        <HealthDot health={node.health} />
        {node.name}
      </h1>
      {warnings.length > 0 && <Warnings warnings={warnings} />}
      {node.simulated && <SimulatedTag />}
      <div className={styles.facts}>
        {node.health !== "live" && (
          <span className={`tag ${node.health === "away" ? "bad" : "warn"}`}>
            {node.health}
            {node.last_seen_at !== null && `, seen ${ago(Date.parse(node.last_seen_at), Date.now())}`}
          </span>
        )}
        {warnings.map((warning) => (
          <span key={warning.text} className={`tag ${warning.kind}`} title={warning.why}>
            {warning.text}
          </span>
        ))}
        {node.cpus !== null && (
          <span className="tag">
            {[
              formatCount(node.cpus, "CPU"),
              offline === 0 ? "" : `${offline} offline`,
              node.packages === null ? "" : formatCount(node.packages, "package"),
              node.numa_nodes === null ? "" : formatCount(node.numa_nodes, "NUMA node"),
            ]
              .filter((part) => part !== "")
              .join(" · ")}
          </span>
        )}
        {node.kernel && <span className="tag">{node.kernel}</span>}
        {driversOf(node.inventory).map((driver) => (
          <span key={driver} className="tag">
            {driver}
          </span>
        ))}
      </div>
    </PageTop>
  );
}
