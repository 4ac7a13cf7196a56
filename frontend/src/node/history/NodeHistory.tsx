import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { errorMessage } from "../../api/client";
import { ChangeTable } from "../../changes/ChangeTable";
import { nodeLogQuery } from "../../changes/queries";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";

/** The node's newest changes, with who made them and what became of them, as on the Changes page. */
export function NodeHistory({ view: { node } }: { view: NodeView }) {
  const log = useQuery(nodeLogQuery(node.id));
  const [open, setOpen] = useState<string>();
  return (
    <section className="card" aria-label="History" aria-busy={log.isFetching}>
      <h2>
        <span>Changes</span>
        <small>the newest on this node; moves of policies and experiments are grouped by hour</small>
        <span className="grow" />
        <Link to="/changes" search={{ node: node.id, span: "7d" }}>
          all changes of {node.name}
        </Link>
      </h2>
      {log.isError && (
        <p className={`${nodeStyles.note} bad`} role="alert">
          {errorMessage(log.error)}
        </p>
      )}
      {log.data?.entries.length === 0 && <p className={nodeStyles.note}>Nothing has been changed on this node yet.</p>}
      {log.data !== undefined && log.data.entries.length > 0 && (
        <ChangeTable rows={log.data.entries} search={{ node: node.id }} open={open} onUnfold={setOpen} isOfNode />
      )}
    </section>
  );
}
