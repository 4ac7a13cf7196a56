import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { MAX_SUGGESTED_NODES } from "../api/constants";
import { SimulatedTag } from "../components/NodeTags";
import { formatFigure, percent, unbroken } from "../lib/format";
import { isHot } from "../lib/metrics";
import { type FleetFigures, useFigures } from "./fleetStore";
import styles from "./hotSpots.module.css";
import { hotSpotReasons, hottestCpu } from "./hotspots";

type Node = Schemas["NodeSummary"];
type Suggestion = Schemas["FleetSuggestion"];

const POLL_MS = 10_000;

/** What would help the first of these nodes, by node id. */
function useSuggestions(nodes: readonly Node[]): Map<number, Suggestion> | undefined {
  const ids = nodes
    .slice(0, MAX_SUGGESTED_NODES)
    .map(({ id }) => id)
    .sort((a, b) => a - b);
  const { data } = useQuery({
    queryKey: ["fleet-suggestions", ids],
    enabled: ids.length > 0,
    queryFn: ({ signal }) => unwrap(api.GET("/api/v1/suggestions", { params: { query: { node_id: ids } }, signal })),
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
  return useMemo(() => data && new Map(data.map((one) => [one.node_id, one])), [data]);
}

/** The nodes with drops, time squeeze or overloaded CPUs: the cause, the figures, and what would help. */
export function HotSpots({ spots }: { spots: Node[] }) {
  const figures = useFigures();
  const suggestions = useSuggestions(spots);
  return (
    <section className="card" aria-labelledby="hot-spots-heading">
      <h2>
        <span id="hot-spots-heading">Hot spots</span> <small>and what would help</small>
      </h2>
      {spots.length === 0 ? (
        <p className="body muted">No drops, no time squeeze, and no CPU overloaded by softirq or 95 % busy.</p>
      ) : (
        <ul className={styles.spots}>
          {spots.map((node, index) => (
            <Spot
              key={node.id}
              node={node}
              figures={figures}
              suggestion={suggestions?.get(node.id)}
              isPending={suggestions === undefined && index < MAX_SUGGESTED_NODES}
            />
          ))}
        </ul>
      )}
    </section>
  );
}

type SpotProps = { node: Node; figures: FleetFigures; suggestion: Suggestion | undefined; isPending: boolean };

function Spot({ node, figures, suggestion, isPending }: SpotProps) {
  const hot = hottestCpu(node.id, figures);
  const known = !Number.isNaN(hot.cpu);
  const reasons =
    figures.health(node.id) === "live" ? hotSpotReasons(node.id, figures).join(" · ") || "subsided" : "no recent data";
  const to = { to: "/nodes/$nodeId", params: { nodeId: node.id } } as const;
  return (
    <li>
      <div>
        <span>
          <Link {...to} search={known ? { sel: `cpu:${hot.cpu}` } : {}} className={styles.name}>
            {node.name}
          </Link>{" "}
          {node.simulated && <SimulatedTag />}
        </span>
        <span className={isHot(hot.percent) ? "bad" : "warn"}>
          {known ? (
            <Link {...to} search={{ sel: `cpu:${hot.cpu}` }} className={styles.cpu}>
              CPU {hot.cpu} · {formatFigure(percent(hot.percent))}
            </Link>
          ) : (
            "–"
          )}
        </span>
      </div>
      <div className="muted">
        <span>{suggestion?.cause}</span>
        <span>{reasons}</span>
      </div>
      <div>
        {suggestion === undefined ? (
          <span className="muted">{isPending && "Looking for a move…"}</span>
        ) : suggestion.helps ? (
          <Link {...to} search={{ hot: suggestion.cpu }}>
            {unbroken(suggestion.sentence.replace(/\.$/, ""))}
          </Link>
        ) : (
          <span className="muted">{unbroken(suggestion.sentence)}</span>
        )}
      </div>
    </li>
  );
}
