import { Button, PasswordInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { BOUNDS, MAX_SESSION_DAYS, SESSION_HOURS } from "../api/constants";
import { handleSignedOut, queryClient } from "../api/queries";
import { FormError, fieldError } from "../components/FormError";
import { Moment } from "../components/Moment";
import { PageTop } from "../components/PageTop";
import { RowsTable } from "../components/RowsTable";
import styles from "../settings/settings.module.css";
import { browserName } from "./browserName";
import { useMe } from "./me";

const KEY = ["own-sessions"];
const refetch = () => queryClient.invalidateQueries({ queryKey: KEY });
const { minLength, maxLength } = BOUNDS.PasswordChange.password;

function ChangePassword() {
  const [present, setPresent] = useState("");
  const [password, setPassword] = useState("");
  const change = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/password", { body: { present, password } })),
    onError: handleSignedOut,
    onSuccess: () => {
      setPresent("");
      setPassword("");
      return refetch();
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    change.mutate();
  };
  return (
    <form className={styles.form} onSubmit={submit}>
      <PasswordInput
        label="Current password"
        required
        maxLength={maxLength}
        autoComplete="current-password"
        w={220}
        value={present}
        error={fieldError(change.error, "present")}
        onChange={(event) => setPresent(event.currentTarget.value)}
      />
      <PasswordInput
        label={`New password, at least ${minLength} characters`}
        required
        minLength={minLength}
        maxLength={maxLength}
        autoComplete="new-password"
        w={260}
        value={password}
        error={fieldError(change.error, "password")}
        onChange={(event) => setPassword(event.currentTarget.value)}
      />
      <Button type="submit" variant="filled" loading={change.isPending}>
        Change
      </Button>
      <FormError error={change.error} fields={["present", "password"]} />
      {change.isSuccess && <p role="status">The password is changed, and your other sessions have ended.</p>}
    </form>
  );
}

function SessionRow({ session }: { session: Schemas["BrowserSession"] }) {
  const end = useMutation({
    mutationFn: () =>
      unwrap(api.DELETE("/api/v1/auth/sessions/{session_id}", { params: { path: { session_id: session.id } } })),
    onError: handleSignedOut,
    onSuccess: refetch,
  });
  return (
    <tr>
      <td className="wrap" title={session.browser ?? undefined}>
        {session.browser === null ? <span className="muted">unknown</span> : browserName(session.browser)}
      </td>
      <td>{session.address ?? <span className="muted">unknown</span>}</td>
      <td>
        <Moment at={session.created_at} />
      </td>
      <td>
        <Moment at={session.expires_at} />
      </td>
      <td className="wrap">
        {session.current ? (
          <span className="muted">this session</span>
        ) : (
          <Button loading={end.isPending} onClick={() => end.mutate()} aria-label={`End the session ${session.id}`}>
            End
          </Button>
        )}
        {end.isError && (
          <div className="bad" role="alert">
            {errorMessage(end.error)}
          </div>
        )}
      </td>
    </tr>
  );
}

/** The user's own account: password and signed-in sessions. */
export function AccountPage() {
  const me = useMe();
  const sessions = useQuery({ queryKey: KEY, queryFn: () => unwrap(api.GET("/api/v1/auth/sessions")), staleTime: 0 });
  return (
    <>
      <PageTop title="Account">
        <h1>Account</h1>
      </PageTop>
      <div className={styles.content}>
        <section className="card">
          <h2>Password</h2>
          <div className="body">
            {me?.issuer == null ? <ChangePassword /> : <p>You sign in with {me.issuer}; change your password there.</p>}
          </div>
        </section>
        <section className="card">
          <h2>
            Sessions{" "}
            <small>
              where you are signed in; one ends after {SESSION_HOURS} hours without use, and after {MAX_SESSION_DAYS}{" "}
              days
            </small>
          </h2>
          <RowsTable rows={sessions} label="sessions" columns={["browser", "address", "signed in", "ends"]}>
            {(session) => <SessionRow session={session} />}
          </RowsTable>
        </section>
      </div>
    </>
  );
}
