import { bytes, formatFigure } from "../lib/format";
import { type NodeView, useFrames } from "./nodeView";

/** The agent's own CPU time and memory, and its capabilities. */
export function AgentCost({ view }: { view: NodeView }) {
  useFrames(view.window);
  const frame = view.window.last;
  const used = frame?.metrics.agent_cpu_percent ?? null;
  if (view.past !== null || frame === undefined || used === null) return null;
  const { capabilities, lacks } = view.node;
  return (
    <p className="muted">
      The agent ({view.node.agent_version}) used {used.toFixed(1)} % of one CPU in the last interval (
      <button type="button" className="link" onClick={() => view.navigate({ chart: "agent" })}>
        chart
      </button>
      ); memory {formatFigure(bytes(frame.metrics.agent_rss_bytes))}.
      {lacks?.length ? ` It is older than the backend and does not know: ${lacks.join(", ")}.` : null}
      {capabilities && ` Its capabilities: ${capabilities.join(", ") || "none"}.`}
    </p>
  );
}
