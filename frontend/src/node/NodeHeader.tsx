import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import { HealthDot, SimulatedTag } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { duration, formatCount, formatFigure, linkSpeed } from "../lib/format";
import { ago } from "../lib/time";
import { movedBy } from "./controllers";

type Node = Schemas["Node"];

/** Drivers of the physical NICs with count and link speed: `igb ×2 · 1 Gb/s`. */
export function driversOf(inventory: Node["inventory"]): string[] {
  const groups = new Map<string, number>();
  for (const netdev of inventory?.netdevs ?? []) {
    if (netdev.virtual || netdev.driver === null) continue;
    const speed = netdev.speed_bits_per_s === null ? "" : ` · ${formatFigure(linkSpeed(netdev.speed_bits_per_s))}`;
    const key = `${netdev.driver}|${speed.replace(/\.0+(?= )/, "")}`;
    groups.set(key, (groups.get(key) ?? 0) + 1);
  }
  return [...groups].map(([key, amount]) => {
    const [driver, speed] = key.split("|");
    return `${driver}${amount > 1 ? ` ×${amount}` : ""}${speed}`;
  });
}

/** The node's name, health and facts in the top bar. */
export function NodeHeader({ node }: { node: Node }) {
  const { rack } = node.labels;
  const offline = node.topology?.cpus.filter((cpu) => !cpu.online).length ?? 0;
  const skew = node.clock_skew_ms;
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
      {node.simulated && <SimulatedTag />}
      {node.health !== "live" && (
        <span className={`tag ${node.health === "away" ? "bad" : "warn"}`}>
          {node.health}
          {node.last_seen_at !== null && `, seen ${ago(Date.parse(node.last_seen_at), Date.now())}`}
        </span>
      )}
      {node.mode === "observe" && (
        <span className="tag warn" title={node.observe_reason ?? undefined}>
          observe only
        </span>
      )}
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
      {node.inventory?.controllers.map((controller) => (
        <span key={controller} className="tag warn" title={`Moves ${movedBy(controller)}; may overwrite a change`}>
          {controller} runs
        </span>
      ))}
      {skew !== null && Math.abs(skew) > 1000 && (
        <span className="tag warn" title="Times on this page are in the node's clock">
          clock {duration(Math.abs(skew) / 1000)} {skew > 0 ? "ahead" : "behind"}
        </span>
      )}
    </PageTop>
  );
}
