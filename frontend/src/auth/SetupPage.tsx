import { Button, PasswordInput, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { ApiProblem, api, errorMessage, setCsrfToken, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { meQuery, queryClient } from "../api/queries";
import { FormError, fieldError } from "../components/FormError";
import { AuthFrame, USERNAME_HINT } from "./Form";

const FIELDS = ["username", "password"];

/** Creates the first administrator, with the one-time token that the backend printed at its first start. */
export function SetupPage() {
  const { token } = useSearch({ from: "/setup" });
  const link = useQuery({
    queryKey: ["set-up-link", token],
    queryFn: () => unwrap(api.POST("/api/v1/auth/setup/check", { body: { token: token ?? "" } })).then(() => true),
    enabled: token !== undefined,
    staleTime: Number.POSITIVE_INFINITY,
  });
  if (token === undefined) {
    return (
      <AuthFrame title="Set up">
        <p>No administrator exists yet.</p>
        <p>
          Open the one-time link that Coresteer printed when it started, for example{" "}
          <code>{location.origin}/setup?token=…</code>
        </p>
        <NewLink />
      </AuthFrame>
    );
  }
  if (link.isPending) {
    return (
      <AuthFrame title="Set up">
        <p className="muted">Checking the set-up link.</p>
      </AuthFrame>
    );
  }
  if (link.isError && link.error instanceof ApiProblem && link.error.status === 409) {
    return (
      <AuthFrame title="Already set up">
        <p>The first administrator exists. The set-up link works once and has been used.</p>
        <Link to="/login">Sign in</Link>
      </AuthFrame>
    );
  }
  if (link.isError) {
    const invalid = link.error instanceof ApiProblem && (link.error.status === 403 || link.error.status === 422);
    return (
      <AuthFrame title={invalid ? "This link is not valid" : "Set up"}>
        {invalid ? (
          <div role="alert">
            <p>The set-up link is mistyped, older than 24 hours, or replaced by a newer one.</p>
            <NewLink />
          </div>
        ) : (
          <p role="alert" className="bad">
            {errorMessage(link.error)}
          </p>
        )}
      </AuthFrame>
    );
  }
  return <FirstAdministrator token={token} />;
}

function NewLink() {
  return (
    <p>
      To get a new link, run <code>coresteer set-up-link</code> on the machine where Coresteer runs.
    </p>
  );
}

function FirstAdministrator({ token }: { token: string }) {
  const navigate = useNavigate();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const [repeated, setRepeated] = useState("");
  const [tried, setTried] = useState(false);
  const differs = password !== repeated;
  const setup = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/setup", { body: { token, username, password } })),
    onError: () => undefined, // a refused token is shown here; the default handler would redirect to the login page
    onSuccess: (me) => {
      setCsrfToken(me.csrf_token);
      queryClient.setQueryData(meQuery.queryKey, me);
      void navigate({ to: "/fleet" });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setTried(true);
    if (!differs) setup.mutate();
  };
  return (
    <AuthFrame title="Create the first administrator">
      <form onSubmit={submit}>
        <TextInput
          label="Name"
          description={USERNAME_HINT}
          pattern={BOUNDS.UserCreate.username.pattern}
          title={USERNAME_HINT}
          autoComplete="username"
          autoFocus
          required
          maxLength={BOUNDS.UserCreate.username.maxLength}
          value={username}
          error={fieldError(setup.error, "username")}
          onChange={(event) => setUsername(event.currentTarget.value)}
        />
        <PasswordInput
          label="Password"
          description={`At least ${BOUNDS.UserCreate.password.minLength} characters`}
          autoComplete="new-password"
          required
          minLength={BOUNDS.UserCreate.password.minLength}
          maxLength={BOUNDS.UserCreate.password.maxLength}
          value={password}
          error={fieldError(setup.error, "password")}
          onChange={(event) => setPassword(event.currentTarget.value)}
        />
        <PasswordInput
          label="Repeat the password"
          autoComplete="new-password"
          required
          maxLength={BOUNDS.UserCreate.password.maxLength}
          value={repeated}
          error={differs && tried ? "The two passwords differ." : undefined}
          onBlur={() => setTried(repeated !== "")}
          onChange={(event) => setRepeated(event.currentTarget.value)}
        />
        <FormError error={setup.error} fields={FIELDS} />
        <Button type="submit" variant="filled" size="sm" loading={setup.isPending}>
          Create administrator and sign in
        </Button>
      </form>
    </AuthFrame>
  );
}
