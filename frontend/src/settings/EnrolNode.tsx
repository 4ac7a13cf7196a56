import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { api, errorMessage, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { CopyField, Secret } from "../components/CopyField";
import { Moment } from "../components/Moment";
import styles from "./settings.module.css";

/** Creates a one-time enrolment token and shows the command that uses it. */
export function EnrolNode() {
  const isAdmin = useHasRole("admin");
  const enrol = useMutation({
    mutationFn: (simulated: boolean) =>
      unwrap(api.POST("/api/enrolment-tokens", { body: { simulated, expires_in_minutes: 60 } })),
    onError: handleSignedOut,
  });
  if (!isAdmin)
    return <p className="muted">Adding a node needs the admin role; ask an administrator for an enrolment token.</p>;
  return (
    <div>
      <div className={styles.form}>
        <Button variant="filled" loading={enrol.isPending && !enrol.variables} onClick={() => enrol.mutate(false)}>
          Enrol a machine
        </Button>
        <Button loading={enrol.isPending && enrol.variables} onClick={() => enrol.mutate(true)}>
          Enrol simulated nodes
        </Button>
      </div>
      {enrol.isError && (
        <p className="bad" role="alert">
          {errorMessage(enrol.error)}
        </p>
      )}
      {enrol.isSuccess && (
        <Secret>
          <p>
            {enrol.variables
              ? "Run this on the machine for the simulated nodes:"
              : "Run this on the machine to add, as root:"}
          </p>
          <CopyField text={enrol.data.command} label="command" />
          <p className="muted">
            The token works once, until <Moment at={enrol.data.expires_at} />, and is not shown again. The enrolled node
            uses its own key.
          </p>
        </Secret>
      )}
    </div>
  );
}
