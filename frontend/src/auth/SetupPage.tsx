import { Button, PasswordInput, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, errorMessage, setCsrfToken, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { meQuery, queryClient } from "../api/queries";
import { FormError, fieldError } from "../components/FormError";
import { AuthFrame, USERNAME_HINT } from "./Form";

const FIELDS = ["username", "password"];

/** Creates the first administrator, with the one-time token that the backend printed at its first start. */
export function SetupPage() {
  const { token } = useSearch({ from: "/setup" });
  const state = useQuery({ queryKey: ["setup"], queryFn: () => unwrap(api.GET("/api/auth/setup")) });
  if (state.isError) {
    return (
      <AuthFrame title="Set up">
        <p role="alert" className="bad">
          {errorMessage(state.error)}
        </p>
      </AuthFrame>
    );
  }
  if (state.data === undefined) {
    return (
      <AuthFrame title="Set up">
        <p className="muted">Checking whether set-up is needed.</p>
      </AuthFrame>
    );
  }
  if (!state.data.needs_setup) {
    return (
      <AuthFrame title="Already set up">
        <p>The first administrator exists. The set-up link works once and has been used.</p>
        <Link to="/login">Sign in</Link>
      </AuthFrame>
    );
  }
  if (token === undefined) {
    return (
      <AuthFrame title="Set up">
        <p>No administrator exists yet.</p>
        <p>
          Open the one-time link that Coresteer printed when it started, for example{" "}
          <code>{location.origin}/setup?token=…</code>
        </p>
      </AuthFrame>
    );
  }
  return <FirstAdministrator token={token} />;
}

function FirstAdministrator({ token }: { token: string }) {
  const navigate = useNavigate();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const setup = useMutation({
    mutationFn: () => unwrap(api.POST("/api/auth/setup", { body: { token, username, password } })),
    onError: () => undefined, // a refused token is shown here; the default handler would redirect to the login page
    onSuccess: (me) => {
      setCsrfToken(me.csrf_token);
      queryClient.setQueryData(meQuery.queryKey, me);
      void navigate({ to: "/fleet" });
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    setup.mutate();
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
        <FormError error={setup.error} fields={FIELDS} />
        <Button type="submit" variant="filled" size="sm" loading={setup.isPending}>
          Create administrator and sign in
        </Button>
      </form>
    </AuthFrame>
  );
}
