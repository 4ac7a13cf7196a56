import { Button, NativeSelect } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { answer, api, type Schemas, sentenceOf } from "../../api/client";
import { signedOut } from "../../api/queries";
import { useMay } from "../../auth/me";
import { duration } from "../../lib/format";
import { takeChange } from "../../live/changes";
import classes from "../node.module.css";
import { PreviewOf } from "./PreviewOf";

/** How long a change may wait to be kept, in seconds. */
export const CONFIRM_S = [30, 60, 120, 300, 600];

/** Why nobody may or can change a node now; null when nothing speaks against it. */
export function whyNot(node: Schemas["Node"], may: boolean): string | null {
  if (!may) return "Your role may look but not change nodes.";
  if (node.mode === "observe") return `This node is observe-only. ${node.observe_reason ?? ""}`;
  if (node.health !== "live" && node.health !== "stale") return "The node is not connected.";
  return null;
}

type Props = { node: Schemas["Node"]; wishes: Schemas["WishIn"][]; reason: string };

/** Settings that somebody proposes: what they would do now, and applying them for a while. */
export function ApplyPlan({ node, wishes, reason }: Props) {
  const [confirmS, setConfirmS] = useState(120);
  const may = useMay("operator");
  const preview = useQuery({
    queryKey: ["preview", node.id, wishes],
    staleTime: 0,
    gcTime: 0,
    queryFn: ({ signal }) =>
      answer(
        api.POST("/api/nodes/{node_id}/previews", {
          params: { path: { node_id: node.id } },
          body: { wishes, allow_isolated: false },
          signal,
        }),
      ),
  });
  const apply = useMutation({
    mutationFn: () => {
      if (preview.data === undefined) throw new Error("There is no preview to apply yet.");
      return answer(
        api.POST("/api/nodes/{node_id}/changes", {
          params: { path: { node_id: node.id } },
          body: { plan: preview.data.plan, confirm_timeout_s: confirmS, guardrails: [], reason },
        }),
      );
    },
    onError: signedOut,
    onSuccess: takeChange,
  });
  const blocked =
    preview.data?.can_apply === false ? (preview.data.blocked_because ?? preview.data.refused[0]?.sentence) : null;
  const why = whyNot(node, may) ?? blocked ?? null;
  return (
    <div className={classes.editor}>
      <PreviewOf answer={preview.data} error={preview.error} confirmS={confirmS} limitUs={null} />
      <div className={classes.terms}>
        <NativeSelect
          label="Returns unless kept within"
          value={String(confirmS)}
          data={CONFIRM_S.map((seconds) => ({ value: String(seconds), label: duration(seconds) }))}
          onChange={(event) => setConfirmS(Number(event.currentTarget.value))}
        />
        <Button
          variant="filled"
          disabled={preview.data?.can_apply !== true || why !== null || apply.isSuccess}
          loading={apply.isPending}
          onClick={() => apply.mutate()}
        >
          Apply for {duration(confirmS)}
        </Button>
      </div>
      {apply.isSuccess ? (
        <p role="status">It is under way; the banner above says when it returns.</p>
      ) : (
        why !== null && <p className="muted">{why}</p>
      )}
      {apply.error !== null && (
        <p className="bad" role="alert">
          {sentenceOf(apply.error)}
        </p>
      )}
    </div>
  );
}
