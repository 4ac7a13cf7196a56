import { NativeSelect } from "@mantine/core";
import { type UseQueryResult, useMutation, useQuery } from "@tanstack/react-query";
import { api, errorMessage, type Schemas, unwrap } from "../../api/client";
import { BOUNDS } from "../../api/constants";
import { handleSignedOut, queryClient } from "../../api/queries";
import { refusalFor } from "../../auth/me";
import { duration } from "../../lib/format";
import { applyChangeUpdate } from "../../live/changes";

const { minimum, maximum, ...timeout } = BOUNDS.ChangeRequest.confirm_timeout_s;
export const DEFAULT_CONFIRM_S: number = timeout.default;
const CONFIRM_S = [minimum, 60, DEFAULT_CONFIRM_S, 300, maximum];

/** The reason why this user cannot change the node now; null when it can be changed. */
export function reasonNotToApply(node: Schemas["Node"], me: Schemas["Me"] | undefined): string | null {
  const refusal = refusalFor(me, "Changing nodes", node.labels);
  if (refusal !== null) return refusal;
  if (node.mode === "observe") return `This node is observe-only. ${node.observe_reason ?? ""}`;
  if (node.health !== "live" && node.health !== "stale") return "The node is not connected.";
  return null;
}

/** The reason why a previewed plan is refused; null when it can be applied, and without a preview. */
export function refusalOf(preview: Schemas["PreviewResponse"] | undefined): string | null {
  if (preview === undefined || preview.can_apply) return null;
  return preview.blocked_because ?? preview.refused[0]?.sentence ?? "This plan is refused.";
}

/** Query for the preview of desired values on a node's current state. */
export function usePreview(nodeId: number, body: Schemas["PreviewRequest"], enabled = true) {
  return useQuery({
    queryKey: ["preview", nodeId, body],
    enabled,
    staleTime: 0,
    gcTime: 0,
    queryFn: ({ signal }) =>
      unwrap(api.POST("/api/v1/nodes/{node_id}/previews", { params: { path: { node_id: nodeId } }, body, signal })),
  });
}

type Terms = Omit<Schemas["ChangeRequest"], "plan" | "restores"> & { restores?: boolean };

/**
 * Mutation that applies a preview's plan; it rolls back unless confirmed within terms.confirm_timeout_s. Its context is
 * that preview.
 */
export function useApply(nodeId: number, preview: UseQueryResult<Schemas["PreviewResponse"]>, terms: Terms) {
  return useMutation({
    mutationFn: () => {
      if (preview.data === undefined) throw new Error("There is no preview to apply yet.");
      return unwrap(
        api.POST("/api/v1/nodes/{node_id}/changes", {
          params: { path: { node_id: nodeId } },
          body: { restores: false, ...terms, plan: preview.data.plan },
        }),
      );
    },
    onMutate: () => preview.data,
    onError: (error) => {
      handleSignedOut(error);
      void queryClient.invalidateQueries({ queryKey: ["preview", nodeId] }); // values may have changed since
    },
    onSuccess: applyChangeUpdate,
  });
}

const REPORT_MS = 250;

/** Mutation that applies a preview's plan, and confirms it as soon as the agent has applied it. */
export function useConfirmed(apply: ReturnType<typeof useApply>) {
  return useMutation({
    mutationFn: async () => {
      let change = await apply.mutateAsync();
      const params = { path: { change_id: change.id } };
      while (change.state === "applying") {
        await new Promise((resolve) => setTimeout(resolve, REPORT_MS));
        change = await unwrap(api.GET("/api/v1/changes/{change_id}", { params }));
      }
      if (change.state !== "unconfirmed") throw new Error(change.steps.at(-1)?.sentence ?? "It was not applied.");
      return unwrap(api.POST("/api/v1/changes/{change_id}/confirm", { params }));
    },
    onSuccess: applyChangeUpdate,
  });
}

type Props = { seconds: number; onChange: (seconds: number) => void };

/** Selects the confirmation timeout. */
export function ConfirmTimeout({ seconds, onChange }: Props) {
  return (
    <NativeSelect
      label="Confirm within"
      value={String(seconds)}
      data={CONFIRM_S.map((choice) => ({ value: String(choice), label: duration(choice) }))}
      onChange={(event) => onChange(Number(event.currentTarget.value))}
    />
  );
}

/** The message of a failed apply request. */
export function ApplyError({ error }: { error: Error | null }) {
  return error === null ? null : (
    <p className="bad" role="alert">
      {errorMessage(error)}
    </p>
  );
}
