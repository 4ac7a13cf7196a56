import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, type Schemas, unwrap } from "../api/client";
import { formatCount } from "../lib/format";
import styles from "./outliers.module.css";
import type { FleetSearch } from "./search";

const POLL_MS = 60_000;

type Difference = Schemas["TraitDifference"];

const said = ({ trait, value, usual }: Difference) => `${trait} ${value} instead of ${usual}`;
const explained = ({ usual, usual_nodes, nodes }: Difference) =>
  `${usual_nodes.toLocaleString("en")} of ${formatCount(nodes, "node")} have ${usual}`;

/** The shown nodes that differ from the rest of their group, one line each; nothing if there are none. */
export function Outliers({ search }: { search: FleetSearch }) {
  const { q, group, within } = search;
  const { data } = useQuery({
    queryKey: ["outliers", q, group, within],
    queryFn: ({ signal }) => {
      const query = {
        ...(q !== undefined && { q }),
        ...(group !== undefined && { group }),
        ...(within !== undefined && { within }),
      };
      return unwrap(api.GET("/api/v1/fleet/outliers", { params: { query }, signal }));
    },
    refetchInterval: POLL_MS,
    placeholderData: keepPreviousData,
  });
  if (data === undefined || data.outliers.length === 0) return null;
  return (
    <section className={`card ${styles.outliers}`} aria-labelledby="outliers-heading">
      <h2>
        <span id="outliers-heading">Outliers</span>{" "}
        <small>nodes that differ from the rest of {group === undefined ? "the fleet" : "their group"}</small>
      </h2>
      <ul>
        {data.outliers.map(({ node_id, node_name, group: of, differences }) => (
          <li key={node_id}>
            <Link to="/nodes/$nodeId" params={{ nodeId: node_id }}>
              {node_name}
            </Link>
            {of !== "" && <span className="muted">{of}</span>}
            <span title={differences.map(explained).join("\n")}>{differences.map(said).join("; ")}</span>
          </li>
        ))}
      </ul>
      {data.more > 0 && (
        <p className="body muted">and {formatCount(data.more, "other node")}; filter or group to see them.</p>
      )}
    </section>
  );
}
