import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api, unwrap } from "../api/client";
import { queryClient } from "../api/queries";

/** Ends the session here and with its issuer, and leads to the sign-in page. */
export function useSignOut() {
  const navigate = useNavigate();
  return useMutation({
    mutationFn: async () => {
      const { url } = await unwrap(api.POST("/api/v1/auth/sso/sign-out"));
      await unwrap(api.POST("/api/v1/auth/logout"));
      return url;
    },
    onSuccess: async (url) => {
      if (url !== null) return window.location.assign(url);
      await navigate({ to: "/login" });
      queryClient.clear();
    },
  });
}
