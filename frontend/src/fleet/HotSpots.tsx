import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { Schemas } from "../api/client";
import { SimulatedTag } from "../components/NodeTags";
import { Scroll } from "../components/Scroll";
import { formatFigure, percent } from "../lib/format";
import { isHot } from "../lib/metrics";
import { useFigures, useStableFigures } from "./fleetStore";
import { hotSpotReasons, hotSpots, hottestCpu } from "./hotspots";

/** The nodes with drops, time squeeze or overloaded CPUs, with the figures. */
export function HotSpots({ nodes }: { nodes: Schemas["NodeSummary"][] }) {
  const stable = useStableFigures();
  const figures = useFigures();
  const spots = useMemo(() => hotSpots(nodes, stable), [nodes, stable]);
  return (
    <section className="card">
      <h2>
        Hot spots <small>with cause</small>
      </h2>
      {spots.length === 0 ? (
        <p className="body muted">No drops, no time squeeze, and no CPU overloaded by softirq.</p>
      ) : (
        <Scroll label="Hot spots">
          <table className="table">
            <thead>
              <tr>
                <th>node</th>
                <th>hottest CPU</th>
                <th>cause</th>
              </tr>
            </thead>
            <tbody>
              {spots.map((node) => {
                const hot = hottestCpu(node.id, figures);
                const known = !Number.isNaN(hot.cpu);
                return (
                  <tr key={node.id}>
                    <td>
                      <Link
                        to="/nodes/$nodeId"
                        params={{ nodeId: node.id }}
                        search={known ? { sel: `cpu:${hot.cpu}` } : {}}
                      >
                        {node.name}
                      </Link>{" "}
                      {node.simulated && <SimulatedTag />}
                    </td>
                    <td className={isHot(hot.percent) ? "bad" : "warn"}>
                      {known ? `CPU ${hot.cpu} · ${formatFigure(percent(hot.percent))}` : "–"}
                    </td>
                    <td className="muted wrap">{hotSpotReasons(node.id, figures).join(" · ") || "subsided"}</td>
                  </tr>
                );
              })}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}
