import { useMutation } from "@tanstack/react-query";
import { Link, useRouter, useSearch } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { api, errorMessage, type Schemas, setCsrfToken, unwrap } from "../api/client";
import { meQuery, queryClient } from "../api/queries";
import { AuthFrame } from "./Form";

/** Finishes a sign-in with the issuer's answer in the address; then opens the page where it began. */
export function SignedInPage() {
  const answer: Schemas["SignInAnswer"] = useSearch({ from: "/signed-in" });
  const router = useRouter();
  const { mutate, error } = useMutation({
    mutationFn: () => unwrap(api.POST("/api/v1/auth/sso/finish", { body: answer })),
    onError: () => undefined, // shown here; the default handler would lead to the sign-in page
    onSuccess: ({ return_to, ...me }) => {
      setCsrfToken(me.csrf_token);
      queryClient.setQueryData(meQuery.queryKey, me);
      router.history.replace(return_to); // the answer, which works once, leaves the history
    },
  });
  const begun = useRef(false);
  useEffect(() => {
    if (begun.current) return; // React mounts twice while developing, and a code works once
    begun.current = true;
    mutate();
  }, [mutate]);
  return (
    <AuthFrame title="Sign in">
      {error === null ? (
        <p role="status">Signing in…</p>
      ) : (
        <>
          <p className="bad" role="alert">
            {errorMessage(error)}
          </p>
          <Link to="/login">Back to the sign-in page</Link>
        </>
      )}
    </AuthFrame>
  );
}
