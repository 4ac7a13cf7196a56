import { NativeSelect } from "@mantine/core";
import { type UseQueryResult, useMutation, useQuery } from "@tanstack/react-query";
import { answer, api, type Schemas, sentenceOf } from "../../api/client";
import { duration } from "../../lib/format";
import { applyChangeUpdate } from "../../live/changes";

const CONFIRM_S = [30, 60, 120, 300, 600];
export const DEFAULT_CONFIRM_S = 120;

/** Why nobody may or can change a node now; null when nothing speaks against it. */
export function reasonNotToApply(node: Schemas["Node"], may: boolean): string | null {
  if (!may) return "Your role may look but not change nodes.";
  if (node.mode === "observe") return `This node is observe-only. ${node.observe_reason ?? ""}`;
  if (node.health !== "live" && node.health !== "stale") return "The node is not connected.";
  return null;
}

/** Why a previewed plan cannot be applied; null when it can, or while there is no preview. */
export function refusalOf(preview: Schemas["PreviewAnswer"] | undefined): string | null {
  if (preview === undefined || preview.can_apply) return null;
  return preview.blocked_because ?? preview.refused[0]?.sentence ?? "This plan is refused.";
}

/** What settings would do now if they had these values. */
export function usePreview(nodeId: number, body: Schemas["PreviewRequest"], enabled = true) {
  return useQuery({
    queryKey: ["preview", nodeId, body],
    enabled,
    staleTime: 0,
    gcTime: 0,
    queryFn: ({ signal }) =>
      answer(api.POST("/api/nodes/{node_id}/previews", { params: { path: { node_id: nodeId } }, body, signal })),
  });
}

type Terms = Omit<Schemas["ChangeRequest"], "plan">;

/** Applying what a preview shows, for a while. */
export function useApply(nodeId: number, preview: UseQueryResult<Schemas["PreviewAnswer"]>, terms: Terms) {
  return useMutation({
    mutationFn: () => {
      if (preview.data === undefined) throw new Error("There is no preview to apply yet.");
      return answer(
        api.POST("/api/nodes/{node_id}/changes", {
          params: { path: { node_id: nodeId } },
          body: { ...terms, plan: preview.data.plan },
        }),
      );
    },
    onSuccess: applyChangeUpdate,
  });
}

type Props = { seconds: number; onChange: (seconds: number) => void };

/** How long a change may wait to be kept. */
export function ConfirmTimeout({ seconds, onChange }: Props) {
  return (
    <NativeSelect
      label="Returns unless kept within"
      value={String(seconds)}
      data={CONFIRM_S.map((choice) => ({ value: String(choice), label: duration(choice) }))}
      onChange={(event) => onChange(Number(event.currentTarget.value))}
    />
  );
}

/** Why applying did not work. */
export function ApplyError({ error }: { error: Error | null }) {
  return error === null ? null : (
    <p className="bad" role="alert">
      {sentenceOf(error)}
    </p>
  );
}
