import { Button, PasswordInput, TextInput } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useRouter, useSearch } from "@tanstack/react-router";
import { type FormEvent, useState } from "react";
import { api, setCsrfToken, unwrap } from "../api/client";
import { meQuery, queryClient } from "../api/queries";
import { FormError, fieldError } from "../components/FormError";
import { AuthFrame } from "./Form";

const FIELDS = ["username", "password"];

/** The sign-in form; returns to the previous page. */
export function LoginPage() {
  const { back } = useSearch({ from: "/login" });
  // Only paths of this site are followed, against open redirects.
  const destination = back?.startsWith("/") && !back.startsWith("//") ? back : "/fleet";
  const router = useRouter();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const login = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/login", { body: { username, password } })),
    onError: () => undefined, // a refused login is shown here; the default handler would redirect to this page
    onSuccess: (me) => {
      setCsrfToken(me.csrf_token);
      queryClient.setQueryData(meQuery.queryKey, me);
      router.history.push(destination);
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    login.mutate();
  };
  const issuer = useQuery({ queryKey: ["setup"], queryFn: () => unwrap(api.GET("/api/v1/auth/setup")) }).data?.issuer;
  const sso = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/sso/begin", { body: { return_to: destination } })),
    onError: () => undefined, // as above
    onSuccess: ({ url }) => url !== null && window.location.assign(url),
  });
  return (
    <AuthFrame title="Sign in">
      {destination !== "/fleet" && (
        <p className="muted">
          Then you return to <code>{destination}</code>
        </p>
      )}
      {typeof issuer === "string" && (
        <>
          <Button variant="filled" size="sm" loading={sso.isPending || sso.isSuccess} onClick={() => sso.mutate()}>
            Sign in with {issuer}
          </Button>
          <FormError error={sso.error} fields={[]} />
          <p className="muted">or as a local user</p>
        </>
      )}
      <form onSubmit={submit}>
        <TextInput
          label="Name"
          autoComplete="username"
          autoFocus
          required
          value={username}
          error={fieldError(login.error, "username")}
          onChange={(event) => setUsername(event.currentTarget.value)}
        />
        <PasswordInput
          label="Password"
          autoComplete="current-password"
          required
          value={password}
          error={fieldError(login.error, "password")}
          onChange={(event) => setPassword(event.currentTarget.value)}
        />
        <FormError error={login.error} fields={FIELDS} />
        <Button type="submit" variant="filled" size="sm" loading={login.isPending}>
          Sign in
        </Button>
      </form>
    </AuthFrame>
  );
}
