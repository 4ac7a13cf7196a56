import { Button } from "@mantine/core";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useHasRole } from "../../auth/me";
import { duration } from "../../lib/format";
import styles from "../node.module.css";
import {
  ApplyError,
  ConfirmTimeout,
  DEFAULT_CONFIRM_S,
  reasonNotToApply,
  refusalOf,
  useApply,
  usePreview,
} from "./applyChange";
import { ChangePreview } from "./ChangePreview";

type Props = { node: Schemas["Node"]; desired: Schemas["DesiredValueIn"][]; reason: string };

/** Previews proposed values and applies them with a confirmation timeout. */
export function ApplyPlan({ node, desired, reason }: Props) {
  const [confirmS, setConfirmS] = useState(DEFAULT_CONFIRM_S);
  const isOperator = useHasRole("operator");
  const preview = usePreview(node.id, { desired, allow_isolated: false });
  const apply = useApply(node.id, preview, { confirm_timeout_s: confirmS, guardrails: [], reason });
  const why = reasonNotToApply(node, isOperator) ?? refusalOf(preview.data);
  return (
    <div className={styles.editor}>
      <ChangePreview preview={preview.data} error={preview.error} confirmS={confirmS} limitUs={null} />
      <div className={styles.terms}>
        <ConfirmTimeout seconds={confirmS} onChange={setConfirmS} />
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
        <p role="status">Applied. Confirm it in the banner above, or it rolls back.</p>
      ) : (
        why !== null && <p className="muted">{why}</p>
      )}
      <ApplyError error={apply.error} />
    </div>
  );
}
