import { bytes, text } from "../lib/format";
import { type NodeView, useFrames } from "./nodeView";

/** The agent's own CPU time and memory. */
export function AgentCost({ view }: { view: NodeView }) {
  useFrames(view.window);
  const frame = view.window.last;
  if (view.past !== null || frame === undefined || frame.agent_cpu_s === null) return null;
  return (
    <p className="muted">
      The agent ({view.node.agent_version}) used {((100 * frame.agent_cpu_s) / frame.duration_s).toFixed(1)} % of one
      CPU in the last interval; memory {text(bytes(frame.agent_rss_bytes))}.
    </p>
  );
}
