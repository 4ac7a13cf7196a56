import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { errorMessage } from "../../api/client";
import { Moment } from "../../components/Moment";
import { SimulatedTagOf } from "../../components/NodeTags";
import { Scroll } from "../../components/Scroll";
import { overviewQuery } from "../queries";

const SHOWN = 200;

/** The nodes of a policy: its version there, settings, recommendations, moves, deferred moves and drift. */
export function NodesTab({ policyId }: { policyId: number }) {
  const { data, error } = useQuery(overviewQuery(policyId));
  const [shown, setShown] = useState(SHOWN);
  if (data === undefined)
    return error === null ? (
      <p className="muted" role="status">
        Loading the nodes.
      </p>
    ) : (
      <p className="bad" role="alert">
        {errorMessage(error)}
      </p>
    );
  if (data.nodes.length === 0) return <p className="muted">The policy is in force on no node.</p>;
  return (
    <section className="card">
      <h2>
        Nodes <small>moves and drift of the last 24 h</small>
        <span className="grow" />
        <a href={`/api/v1/policies/${policyId}/overview.csv`} download>
          Export as CSV
        </a>
      </h2>
      <Scroll label="Nodes">
        <table className="table">
          <thead>
            <tr>
              <th>node</th>
              <th>version</th>
              <th>state</th>
              <th className="n">settings held</th>
              <th className="n">changed by others</th>
              <th className="n">recommended now</th>
              <th className="n">moves</th>
              <th className="n">deferred</th>
              <th className="n">drift</th>
              <th>latest decision</th>
            </tr>
          </thead>
          <tbody>
            {data.nodes.slice(0, shown).map((node) => (
              <tr key={node.node_id}>
                <td>
                  <Link to="/nodes/$nodeId" params={{ nodeId: node.node_id }} search={{ tab: "policies" }}>
                    {node.node_name}
                  </Link>{" "}
                  <SimulatedTagOf nodeId={node.node_id} />
                </td>
                <td>{node.version === null ? "none" : `v${node.version}`}</td>
                <td className={node.connected ? "" : "warn"}>
                  {!node.connected
                    ? "disconnected"
                    : node.held_out
                      ? "in holdout"
                      : node.version === null
                        ? "not restored yet"
                        : "in force"}
                </td>
                <td className="n">{node.settings.toLocaleString("en")}</td>
                <td className="n">{node.foreign.toLocaleString("en")}</td>
                <td className="n">{node.recommended.toLocaleString("en")}</td>
                <td className="n">{node.moves.toLocaleString("en")}</td>
                <td className="n">{node.deferred.toLocaleString("en")}</td>
                <td className="n">{node.drifts.toLocaleString("en")}</td>
                <td>{node.at !== null && <Moment at={node.at} />}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
      {data.nodes.length > shown && (
        <p className="body">
          <button type="button" className="link" onClick={() => setShown(shown + SHOWN)}>
            Show more of {data.nodes.length.toLocaleString("en")}
          </button>
        </p>
      )}
    </section>
  );
}
