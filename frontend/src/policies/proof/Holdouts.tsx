import { Button } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { api, errorMessage, unwrap } from "../../api/client";
import { handleSignedOut, queryClient } from "../../api/queries";
import { useHasRole } from "../../auth/me";
import { Moment } from "../../components/Moment";
import styles from "../policies.module.css";
import { holdoutsText } from "../policyState";
import { fleetProofQuery, policiesQuery } from "../queries";

/** Whether policies are held out at random moments to prove their effect, and how to pause that on all nodes at once. */
export function Holdouts() {
  const proof = useQuery(fleetProofQuery);
  const policies = useQuery(policiesQuery).data ?? [];
  const isOperator = useHasRole("operator");
  const paused = proof.data?.paused_at != null;
  const toggle = useMutation({
    mutationFn: () => unwrap(paused ? api.POST("/api/v1/proof/resume") : api.POST("/api/v1/proof/pause")),
    onError: handleSignedOut,
    onSettled: () => queryClient.invalidateQueries({ queryKey: policiesQuery.queryKey }),
  });
  return (
    <section className={`card ${styles.standing}`} aria-label="Holdouts">
      {proof.data === undefined ? (
        proof.error !== null && (
          <span className="bad" role="alert">
            {errorMessage(proof.error)}
          </span>
        )
      ) : (
        <>
          <b>
            <span className={`dot ${paused ? "warn" : "ok"}`} />
            {paused ? "Holdouts paused" : holdoutsText(policies)}
          </b>
          <span className={styles.what}>
            {paused ? (
              <>
                Since <Moment at={proof.data.paused_at} /> by {proof.data.paused_by}. Resuming lets nodes hold policies
                out again, one at a time, and continues to measure what each policy saves.
              </>
            ) : (
              "Pausing ends the holdouts of all policies at once: a comparison that has begun does not count, and no effect is measured until someone resumes."
            )}
          </span>
          {isOperator && (
            <Button loading={toggle.isPending} onClick={() => toggle.mutate()}>
              {paused ? "Resume holdouts" : "Pause holdouts"}
            </Button>
          )}
          {toggle.isError && (
            <span className="bad" role="alert">
              {errorMessage(toggle.error)}
            </span>
          )}
        </>
      )}
    </section>
  );
}
