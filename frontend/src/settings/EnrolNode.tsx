import { Button } from "@mantine/core";
import { type UseMutationResult, useMutation } from "@tanstack/react-query";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { CopyField, Secret } from "../components/CopyField";
import { Moment } from "../components/Moment";

const LOOPBACK = /^(localhost|127\.|\[::1\])/;

type Enrolment = UseMutationResult<Schemas["EnrolmentToken"], unknown, void>;

/** Creates a one-time enrolment token. simulated: for simulated nodes. */
export const useEnrolment = (simulated = false): Enrolment =>
  useMutation({
    mutationFn: () => unwrap(api.POST("/api/enrolment-tokens", { body: { simulated, expires_in_minutes: 60 } })),
    onError: handleSignedOut,
  });

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
          <p>{simulated ? "Run this on any machine:" : "Run this on the machine to add, as root:"}</p>
          <CopyField text={enrol.data.command} label="command" />
          {!simulated && LOOPBACK.test(location.host) && (
            <p className="warn">
              Other machines cannot reach {location.host}. To serve them, start the backend with{" "}
              <code>CORESTEER_HOST=0.0.0.0 coresteer serve --tls auto</code> or behind a TLS proxy.
            </p>
          )}
          <p className="muted">
            The token works once, until <Moment at={enrol.data.expires_at} />, and is not shown again. The enrolled node
            uses its own key.
          </p>
        </Secret>
      )}
    </>
  );
}

/** A button that creates an enrolment token, and then the command that uses it. simulated: for simulated nodes. */
export function EnrolNode({ simulated = false }: { simulated?: boolean }) {
  const isAdmin = useHasRole("admin");
  const enrol = useEnrolment(simulated);
  if (!isAdmin)
    return <p className="muted">Adding a node needs the admin role; ask an administrator for the command.</p>;
  return (
    <div>
      <Button variant={simulated ? "default" : "filled"} loading={enrol.isPending} onClick={() => enrol.mutate()}>
        {simulated ? "Create the command" : "Show the command"}
      </Button>
      <EnrolCommand enrol={enrol} simulated={simulated} />
    </div>
  );
}
