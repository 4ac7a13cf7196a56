import { Button } from "@mantine/core";
import { useState } from "react";
import type { Schemas } from "../../api/client";
import { useMay } from "../../auth/me";
import { duration } from "../../lib/format";
import classes from "../node.module.css";
import { NotApplied, ReturnsWithin, USUAL_CONFIRM_S, useApply, usePreview, whyNot } from "./applying";
import { PreviewOf } from "./PreviewOf";

type Props = { node: Schemas["Node"]; desired: Schemas["DesiredValueIn"][]; reason: string };

/** Settings that somebody proposes: what they would do now, and applying them for a while. */
export function ApplyPlan({ node, desired, reason }: Props) {
  const [confirmS, setConfirmS] = useState(USUAL_CONFIRM_S);
  const may = useMay("operator");
  const preview = usePreview(node.id, { desired, allow_isolated: false });
  const apply = useApply(node.id, preview, { confirm_timeout_s: confirmS, guardrails: [], reason });
  const blocked =
    preview.data?.can_apply === false ? (preview.data.blocked_because ?? preview.data.refused[0]?.sentence) : null;
  const why = whyNot(node, may) ?? blocked ?? null;
  return (
    <div className={classes.editor}>
      <PreviewOf answer={preview.data} error={preview.error} confirmS={confirmS} limitUs={null} />
      <div className={classes.terms}>
        <ReturnsWithin seconds={confirmS} onChange={setConfirmS} />
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
      <NotApplied error={apply.error} />
    </div>
  );
}
