import { Link } from "@tanstack/react-router";
import { SimulatedTagOf } from "../../components/NodeTags";
import { Scroll } from "../../components/Scroll";
import { unbroken } from "../../lib/format";
import { SettingName, WasBecomes } from "../decisions/EvaluationResult";
import type { Overview } from "../types";
import styles from "./overview.module.css";

/** The changes that a policy in mode recommend proposes now, each with its node, where it can be previewed and applied. */
export function Recommendations({ overview }: { overview: Overview }) {
  const { recommended, recommendations } = overview;
  if (recommended === 0) return <NothingRecommended nodes={overview.nothing_recommended} />;
  return (
    <section className={`card ${styles.nothing}`} aria-label="Recommended now">
      <h2>
        Recommended now{" "}
        <small>
          {recommendations.length < recommended &&
            `the first ${recommendations.length} of ${recommended.toLocaleString("en")}; `}
          nothing is written; preview and apply them on the node
        </small>
      </h2>
      <Scroll label="Recommended now">
        <table className="table">
          <thead>
            <tr>
              <th>node</th>
              <th>setting</th>
              <th>was → becomes</th>
              <th>why</th>
            </tr>
          </thead>
          <tbody>
            {recommendations.map((one) => (
              <tr key={`${one.node_id} ${one.key}`}>
                <NodeCell {...one} />
                <td>
                  <SettingName of={one.key} />
                </td>
                <td>
                  <WasBecomes action={one} />
                </td>
                <td className="wrap">{one.reason}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

/** A node, with a link to its policies. */
function NodeCell({ node_id, node_name }: { node_id: number; node_name: string }) {
  return (
    <td>
      <Link to="/nodes/$nodeId" params={{ nodeId: node_id }} search={{ tab: "policies" }}>
        {node_name}
      </Link>{" "}
      <SimulatedTagOf nodeId={node_id} />
    </td>
  );
}

/** Why a policy in mode recommend proposes nothing now, by node. */
function NothingRecommended({ nodes }: { nodes: Overview["nothing_recommended"] }) {
  if (nodes.length === 0) return null;
  return (
    <section className={`card ${styles.nothing}`} aria-label="Nothing recommended now">
      <h2>
        Nothing recommended now <small>the latest decision on each node; its policies tab has the details</small>
      </h2>
      <Scroll label="Nothing recommended now">
        <table className="table">
          <thead>
            <tr>
              <th>node</th>
              <th>why</th>
            </tr>
          </thead>
          <tbody>
            {nodes.map((one) => (
              <tr key={one.node_id}>
                <NodeCell {...one} />
                <td className="wrap">{unbroken(one.sentence)}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}
