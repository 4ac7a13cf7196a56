import { Button, NumberInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, errorMessage, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { approvalThresholdQuery, handleSignedOut, queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { FormError } from "../components/FormError";
import { formatCount } from "../lib/format";
import styles from "./settings.module.css";

function Form({ above }: { above: number }) {
  const [entered, setEntered] = useState<number | string>(above);
  const save = useMutation({
    mutationFn: () => unwrap(api.PUT("/api/v1/approvals/threshold", { body: { above: Number(entered) } })),
    onError: handleSignedOut,
    onSuccess: (stored) => queryClient.setQueryData(approvalThresholdQuery.queryKey, stored),
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    save.mutate();
  };
  return (
    <form className={styles.form} onSubmit={submit}>
      <NumberInput
        size="xs"
        label="Above this number of nodes"
        min={0}
        max={BOUNDS.ApprovalThreshold.above.maximum}
        allowDecimal={false}
        w={200}
        value={entered}
        onChange={setEntered}
      />
      <Button
        type="submit"
        variant="filled"
        disabled={entered === "" || Number(entered) === above}
        loading={save.isPending}
      >
        Save
      </Button>
      <FormError error={save.error} fields={[]} />
    </form>
  );
}

/** Above how many nodes actions on policies wait for the approval of another operator. */
export function ApprovalThreshold() {
  const isAdmin = useHasRole("admin");
  const { data, error } = useQuery(approvalThresholdQuery);
  return (
    <section className="card">
      <h2>
        Two-person approval <small>enabling, disabling, deleting and rolling out policies that write</small>
      </h2>
      <div className="body">
        {error !== null && (
          <p className="bad" role="alert">
            {errorMessage(error)}
          </p>
        )}
        {data !== undefined && (
          <>
            <p role="status">
              {data.above === 0
                ? "Nothing waits for approval; 0 stands for never."
                : `What concerns more than ${formatCount(data.above, "node")} waits for another operator, on the page Policies. Stopping enforcement and rolling back never wait.`}
            </p>
            {isAdmin ? <Form above={data.above} /> : <p className="muted">Changing this needs the admin role.</p>}
          </>
        )}
      </div>
    </section>
  );
}
