import { Button, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, unwrap } from "../../api/client";
import { handleSignedOut, queryClient } from "../../api/queries";
import { refusalFor, useMe } from "../../auth/me";
import { ConfirmDialog } from "../../components/ConfirmDialog";
import { Moment } from "../../components/Moment";
import { formatCount } from "../../lib/format";
import styles from "../policies.module.css";
import { approvalsQuery, policiesQuery } from "../queries";
import type { Approval } from "../types";
import { shownApprovals } from "./shown";

type How = "approve" | "reject" | "withdraw";

const refetch = () => queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey });

const TEXTS: Record<How, { action: string; help: string }> = {
  approve: { action: "Approve", help: "It is carried out at once, exactly as requested, or not at all." },
  reject: { action: "Reject", help: "Nothing is changed. Whoever requested it can request it again." },
  withdraw: { action: "Withdraw", help: "Nothing is changed, and nobody needs to decide." },
};

function Decision({ approval, how, onClose }: { approval: Approval; how: How; onClose: () => void }) {
  const [reason, setReason] = useState("");
  const { action, help } = TEXTS[how];
  const params = { path: { approval_id: approval.id } };
  const decide = useMutation({
    mutationFn: () =>
      how === "approve"
        ? unwrap(api.POST("/api/v1/approvals/{approval_id}/approve", { params }))
        : how === "reject"
          ? unwrap(api.POST("/api/v1/approvals/{approval_id}/reject", { params, body: { reason } }))
          : unwrap(api.POST("/api/v1/approvals/{approval_id}/withdraw", { params })),
    onError: handleSignedOut,
    onSuccess: () => {
      onClose();
      return refetch();
    },
  });
  return (
    <ConfirmDialog
      title={`${action}: ${approval.policy_name}`}
      action={action}
      harmless={how !== "approve" || approval.action === "enable" || approval.action === "roll_out"}
      disabled={decide.isError}
      pending={decide.isPending}
      error={decide.error}
      onConfirm={() => decide.mutate()}
      onClose={() => {
        onClose();
        void refetch();
      }}
    >
      <p>
        {approval.requested_by} requests to {approval.what}. It concerns {formatCount(approval.nodes, "node")}.
      </p>
      <p className="muted">{help}</p>
      {how === "reject" && (
        <TextInput
          label="Why"
          data-autofocus
          autoComplete="off"
          maxLength={500}
          value={reason}
          onChange={(event) => setReason(event.currentTarget.value)}
        />
      )}
    </ConfirmDialog>
  );
}

/** Requests that wait for another operator's approval: of one policy, with the last one that came to nothing, or all. */
export function Approvals({ policyId }: { policyId?: number }) {
  const approvals = useQuery(approvalsQuery).data ?? [];
  const policies = useQuery(policiesQuery).data ?? [];
  const me = useMe();
  const [deciding, setDeciding] = useState<{ approval: Approval; how: How } | null>(null);
  const refusal = ({ policy_id }: Approval) =>
    refusalFor(me, "Approving", policies.find(({ id }) => id === policy_id)?.body.selector.labels);
  return (
    <>
      {shownApprovals(approvals, policyId, Date.now()).map((approval) => (
        <section key={approval.id} className={`card ${styles.standing}`} aria-label={`Request ${approval.id}`}>
          <b>
            <span className={`dot ${approval.state === "waiting" ? "warn" : "bad"}`} />
            {policyId === undefined ? (
              <Link to="/policies/$policyId" params={{ policyId: approval.policy_id }}>
                {approval.policy_name}
              </Link>
            ) : (
              "Request"
            )}
          </b>
          <span className={styles.what}>
            {approval.requested_by} requested to {approval.what}, <Moment at={approval.requested_at} />.{" "}
            {approval.sentence}
            {approval.state === "waiting" && (
              <>
                {" "}
                It expires <Moment at={approval.expires_at} />.
              </>
            )}
          </span>
          {approval.state === "waiting" &&
            (approval.requested_by === me?.username ? (
              <Button onClick={() => setDeciding({ approval, how: "withdraw" })}>Withdraw…</Button>
            ) : (
              refusal(approval) === null && (
                <span className={styles.buttons}>
                  <Button variant="filled" onClick={() => setDeciding({ approval, how: "approve" })}>
                    Approve…
                  </Button>
                  <Button onClick={() => setDeciding({ approval, how: "reject" })}>Reject…</Button>
                </span>
              )
            ))}
        </section>
      ))}
      {deciding !== null && <Decision {...deciding} onClose={() => setDeciding(null)} />}
    </>
  );
}
