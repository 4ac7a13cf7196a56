import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import type { Schemas } from "../api/client";
import nodeStyles from "../node/node.module.css";
import { policyResponsesQuery } from "./queries";

type Props = { nodeId: number; desired: Schemas["DesiredValueIn"][]; title: string; rolledBack?: boolean };

/** What the enforced policies do after an undo, and what to do where one would set its value again. */
export function PolicyResponses({ nodeId, desired, title, rolledBack = false }: Props) {
  const found = useQuery(policyResponsesQuery(nodeId, desired, rolledBack)).data;
  if (found === undefined) return null;
  if (found.stopped)
    return (
      <p className="muted">
        Policies set no value now: enforcement is stopped on this node, or its change window is closed. They may set
        values again afterwards.
      </p>
    );
  return found.responses.map(({ policy_id, name, reaction, sentence }) =>
    reaction === "writes" ? (
      <div key={`${policy_id} ${reaction}`} className={nodeStyles.warnbox} role="note">
        <p>
          <b>{sentence}</b> To keep the values of the {title.toLowerCase()},{" "}
          <Link to="/policies/$policyId" params={{ policyId: Number(policy_id) }} search={{ tab: "edit" }}>
            change “{name}” to recommend or narrow its nodes
          </Link>{" "}
          first; or {title.toLowerCase()} anyway.
        </p>
      </div>
    ) : (
      <p key={`${policy_id} ${reaction}`} className="muted">
        {sentence}
      </p>
    ),
  );
}
