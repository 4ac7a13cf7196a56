import { Button, PasswordInput, TextInput } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
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
  const router = useRouter();
  const [username, setUsername] = useState("");
  const [password, setPassword] = useState("");
  const login = useMutation({
    mutationFn: () => unwrap(api.POST("/api/auth/login", { body: { username, password } })),
    onError: () => undefined, // a refused login is shown here; the default handler would redirect to this page
    onSuccess: (me) => {
      setCsrfToken(me.csrf_token);
      queryClient.setQueryData(meQuery.queryKey, me);
      // Only paths of this site are followed, against open redirects.
      router.history.push(back?.startsWith("/") && !back.startsWith("//") ? back : "/fleet");
    },
  });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    login.mutate();
  };
  return (
    <AuthFrame title="Sign in">
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
