import { Button } from "@mantine/core";
import { errorMessage } from "../api/client";
import { useHasRole } from "../auth/me";
import { CopyField, Secret } from "../components/CopyField";
import { Moment } from "../components/Moment";
import { formatCount } from "../lib/format";
import { type Enrolment, useEnrolment } from "./enrolment";

const LOOPBACK = /^(localhost|127\.|\[::1\])/;

/** The command that uses a new enrolment token, or why there is none. */
export function EnrolCommand({ enrol, simulated = false }: { enrol: Enrolment; simulated?: boolean }) {
  return (
    <>
      {enrol.isError && (
        <p className="bad" role="alert">
          {errorMessage(enrol.error)}
        </p>
      )}
      {enrol.isSuccess && (
        <Secret>
          <p>
            {simulated
              ? "Run this on any machine:"
              : `Run this on ${enrol.data.max_uses === 1 ? "the machine" : "each machine"} to add, as root:`}
          </p>
          <CopyField text={enrol.data.command} label="command" />
          {LOOPBACK.test(location.host) && (
            <p className="warn">
              Other machines cannot reach {location.host}. To serve them, start the backend with a PostgreSQL of your
              own, <code>DATABASE_URL=… CORESTEER_HOST=0.0.0.0 coresteer serve --tls auto</code>, or behind a TLS proxy.
            </p>
          )}
          <p className="muted">
            The token works {enrol.data.max_uses === 1 ? "once" : formatCount(enrol.data.max_uses, "time")}, until{" "}
            <Moment at={enrol.data.expires_at} />, and is not shown again. Each enrolled node uses its own key.
          </p>
        </Secret>
      )}
    </>
  );
}

/** A button that creates an enrolment token, and then the command that uses it. simulated: for simulated nodes. */
export function EnrolNode({ simulated = false }: { simulated?: boolean }) {
  const isAdmin = useHasRole("admin");
  const enrol = useEnrolment();
  if (!isAdmin)
    return <p className="muted">Adding a node needs the admin role; ask an administrator for the command.</p>;
  return (
    <div>
      <Button
        variant={simulated ? "default" : "filled"}
        loading={enrol.isPending}
        onClick={() => enrol.mutate({ simulated })}
      >
        {simulated ? "Create the command" : "Show the command"}
      </Button>
      <EnrolCommand enrol={enrol} simulated={simulated} />
    </div>
  );
}
