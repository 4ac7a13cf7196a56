import { Button } from "@mantine/core";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useMe } from "../../auth/me";
import { duration } from "../../lib/format";
import styles from "../node.module.css";
import {
  ApplyError,
  ConfirmTimeout,
  DEFAULT_CONFIRM_S,
  reasonNotToApply,
  refusalOf,
  useApply,
  useConfirmed,
  usePreview,
} from "./applyChange";
import { ChangePreview } from "./ChangePreview";
import { Outcome } from "./Outcome";

type Props = {
  node: Schemas["Node"];
  desired: Schemas["DesiredValueIn"][];
  reason: string;
  /** What the button does: `Undo`; `Apply` when absent. */
  action?: string;
  /** Id of the change that this one undoes. */
  undoes?: string | undefined;
  /** Whether the values are those found before the first change. */
  restores?: boolean;
  /** Whether the values may use isolated CPUs, as those may that are restored. */
  allowIsolated?: boolean;
  onApplied?: () => void;
  /** Whether a second button applies and confirms in one step. */
  canConfirmAtOnce?: boolean;
};

/** Previews proposed values and applies them with a confirmation timeout. */
export function ApplyPlan(props: Props) {
  const { node, desired, reason, action, undoes, restores = false } = props;
  const { allowIsolated = false, canConfirmAtOnce = false, onApplied } = props;
  const [confirmS, setConfirmS] = useState(DEFAULT_CONFIRM_S);
  const me = useMe();
  const preview = usePreview(node.id, { desired, allow_isolated: allowIsolated });
  const apply = useApply(node.id, preview, { confirm_timeout_s: confirmS, guardrails: [], reason, undoes, restores });
  const confirmed = useConfirmed(apply);
  const why = reasonNotToApply(node, me) ?? refusalOf(preview.data);
  const canApply = preview.data?.can_apply === true && why === null && !apply.isSuccess;
  return (
    <div className={styles.editor}>
      <ChangePreview
        preview={apply.isSuccess ? apply.context : preview.data}
        error={preview.error}
        confirmS={confirmS}
        limitUs={null}
      />
      <div className={styles.terms}>
        <ConfirmTimeout seconds={confirmS} onChange={setConfirmS} />
        <Button
          variant="filled"
          disabled={!canApply}
          loading={apply.isPending}
          onClick={() => apply.mutate(undefined, { onSuccess: onApplied })}
        >
          {action === undefined ? `Apply for ${duration(confirmS)}` : `${action}, then confirm`}
        </Button>
        {canConfirmAtOnce && (
          <Button disabled={!canApply} loading={confirmed.isPending} onClick={() => confirmed.mutate()}>
            {action ?? "Apply"} and confirm now
          </Button>
        )}
      </div>
      {confirmed.isSuccess ? (
        <p role="status">Applied and confirmed.</p>
      ) : apply.isSuccess && !confirmed.isPending ? (
        <Outcome change={apply.data} />
      ) : (
        why !== null && <p className="muted">{why}</p>
      )}
      <ApplyError error={apply.error ?? confirmed.error} />
    </div>
  );
}
