import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { api, type Schemas, unwrap } from "../api/client";
import { formatCount } from "../lib/format";
import styles from "./outliers.module.css";

const POLL_MS = 60_000;
const MAX_SHOWN = 20;

type Difference = Schemas["TraitDifference"];

const said = ({ trait, value, usual }: Difference) => `${trait} ${value} instead of ${usual}`;
const explained = ({ usual, usual_nodes, nodes }: Difference) =>
  `${usual_nodes.toLocaleString("en")} of ${formatCount(nodes, "node")} have ${usual}`;

/** The shown nodes that differ from the rest of their group, one line each; nothing if there are none. */
export function Outliers({ nodes, group }: { nodes: Schemas["NodeSummary"][]; group: string | undefined }) {
  const { data } = useQuery({
    queryKey: ["outliers", group],
    queryFn: ({ signal }) =>
      unwrap(api.GET("/api/nodes/outliers", { params: { query: group === undefined ? {} : { group } }, signal })),
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
  const shown = useMemo(() => {
    const ids = new Set(nodes.map(({ id }) => id));
    return data?.filter(({ node_id }) => ids.has(node_id)) ?? [];
  }, [data, nodes]);
  if (shown.length === 0) return null;
  const more = shown.length - MAX_SHOWN;
  return (
    <section className={`card ${styles.outliers}`} aria-labelledby="outliers-heading">
      <h2>
        <span id="outliers-heading">Outliers</span>{" "}
        <small>nodes that differ from the rest of {group === undefined ? "the fleet" : "their group"}</small>
      </h2>
      <ul>
        {shown.slice(0, MAX_SHOWN).map(({ node_id, node_name, group: of, differences }) => (
          <li key={node_id}>
            <Link to="/nodes/$nodeId" params={{ nodeId: node_id }}>
              {node_name}
            </Link>
            {of !== "" && <span className="muted">{of}</span>}
            <span title={differences.map(explained).join("\n")}>{differences.map(said).join("; ")}</span>
          </li>
        ))}
      </ul>
      {more > 0 && <p className="body muted">and {formatCount(more, "other node")}; filter or group to see them.</p>}
    </section>
  );
}
