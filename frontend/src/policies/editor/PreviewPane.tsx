import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { type ReactNode, useMemo } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../../api/client";
import { nodeSummaryQuery } from "../../api/queries";
import { NodePicker } from "../../components/NodePicker";
import { SimulatedTagOf } from "../../components/NodeTags";
import { duration } from "../../lib/format";
import { EvaluationResult } from "../decisions/EvaluationResult";
import styles from "../policies.module.css";
import { ClassMatches } from "./ClassMatches";
import { CoalescingOutcomes } from "./CoalescingOutcomes";
import { useMatches } from "./Matches";
import { type Draft, readBody, readSelector } from "./policyDraft";
import { previewNodes } from "./previewNodes";

const TYPING_MS = 350;
const AGAIN_MS = 10_000;
type Props = { draft: Draft; chosen: string | undefined; onChoose: (nodes: string | undefined) => void };

/** The result of the edited policy on chosen nodes now. */
export function PreviewPane({ draft, chosen, onChoose }: Props) {
  const matches = useMatches(readSelector(draft), chosen).data;
  const ids = useMemo(() => previewNodes(chosen, matches?.live), [chosen, matches]);
  const reading = useMemo(() => {
    const name = draft.values.name?.trim() || "a policy without a name yet";
    return readBody({ ...draft, values: { ...draft.values, name } });
  }, [draft]);
  const request = useMemo(() => JSON.stringify({ body: reading.body, node_ids: ids }), [reading, ids]);
  const [settled] = useDebouncedValue(request, TYPING_MS);
  const preview = useQuery({
    queryKey: ["policy-preview", settled],
    enabled: reading.body !== null && ids.length > 0 && settled === request,
    placeholderData: keepPreviousData,
    staleTime: 0,
    gcTime: 0,
    refetchInterval: AGAIN_MS,
    queryFn: ({ signal }) => unwrap(api.POST("/api/v1/policies/preview", { body: JSON.parse(settled), signal })),
  });
  const set = (next: number[]) => onChoose(next.length === 0 ? undefined : next.join(","));
  const old = settled !== request || preview.isPlaceholderData;
  return (
    <section className={`card ${styles.pane}`} aria-label="Preview">
      <h2>
        Preview <small>the result if it were enforced now; nothing is changed</small>
        <span className="grow" />
        <small role="status">{reading.body !== null && old && ids.length > 0 ? "updating…" : ""}</small>
      </h2>
      <div className={`body ${styles.previewNodes}`}>
        <NodePicker
          label="Nodes of the preview"
          placeholder="add a node by name"
          except={new Set(ids)}
          onPick={(id) => set([...ids, id])}
        />
        {ids.map((id) => (
          <button key={id} type="button" className={styles.pill} onClick={() => set(ids.filter((one) => one !== id))}>
            <NodeName nodeId={id} /> {matches?.others.includes(id) && <span className="warn">not matched </span>}
            <span aria-hidden="true">×</span>
            <span className="visually-hidden">, remove</span>
          </button>
        ))}
      </div>
      <div aria-live="polite" aria-busy={old} className={styles.previews}>
        {reading.body === null ? (
          <p className="muted">The preview resumes when all fields are valid.</p>
        ) : ids.length === 0 ? (
          <p className="muted">No live node matches. Choose a node to preview the policy on its last reported state.</p>
        ) : preview.isError ? (
          <p className="bad" role="alert">
            {errorMessage(preview.error)}
          </p>
        ) : preview.data === undefined ? (
          ids.map((id) => <div key={id} className={`${styles.waiting} hatched`} />)
        ) : (
          preview.data.map((one) => (
            <OnNode key={one.node_id} of={one}>
              {reading.body.spec.type === "service-class" && (
                <ClassMatches
                  nodeId={one.node_id}
                  name={one.node_name}
                  spec={reading.body.spec}
                  scope={reading.body.scope}
                />
              )}
            </OnNode>
          ))
        )}
        {reading.body?.spec.type === "coalescing" && (
          <CoalescingOutcomes nodeIds={ids} spec={reading.body.spec} scope={reading.body.scope} />
        )}
      </div>
    </section>
  );
}

function NodeName({ nodeId }: { nodeId: number }) {
  return useQuery(nodeSummaryQuery(nodeId)).data?.name ?? `node ${nodeId}`;
}

const STALE_S = 30;

function OnNode({ of, children }: { of: Schemas["NodeEvaluation"]; children: ReactNode }) {
  const age = of.view_age_s;
  return (
    <article className={styles.onNode} aria-label={of.node_name}>
      <h3>
        <Link to="/nodes/$nodeId" params={{ nodeId: of.node_id }}>
          {of.node_name}
        </Link>{" "}
        <SimulatedTagOf nodeId={of.node_id} />
        {age !== null && age > STALE_S && (
          <span className="tag warn" title="No newer data from this node">
            as of {duration(age)} ago
          </span>
        )}
      </h3>
      {of.evaluation !== null && of.error === null ? (
        <EvaluationResult evaluation={of.evaluation} label={of.node_name} />
      ) : (
        <p className={styles.unknown}>
          <i className="hatched" aria-hidden="true" /> {of.error ?? "There is no data from this node."}
        </p>
      )}
      {children}
    </article>
  );
}
