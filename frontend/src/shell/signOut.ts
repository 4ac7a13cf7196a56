import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { api, unwrap } from "../api/client";
import { queryClient } from "../api/queries";

/** Ends the session and leads to the sign-in page. */
export function useSignOut() {
  const navigate = useNavigate();
  return useMutation({
    mutationFn: () => unwrap(api.POST("/api/auth/logout")),
    onSuccess: async () => {
      await navigate({ to: "/login" });
      queryClient.clear();
    },
  });
}
