import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { type Rule, rulesQuery } from "./queries";
import { Rules } from "./Rules";

const RULE = vi.hoisted(() => ({
  ...{ id: 3, name: "drops", signal: "drops", label: "Drops", meaning: "packets", unit: "/s", labels: {} },
  ...{ threshold: 10, clear: 5, for_s: 60, keep_s: 60, severity: "warning", enabled: true, firing: 0 },
}));

/** A fake backend on which somebody else has raised the threshold; it records what is put. */
const put = vi.hoisted(() => {
  const bodies: unknown[] = [];
  globalThis.fetch = async (input) => {
    const request = input as Request;
    if (request.method === "PUT") bodies.push(await request.json());
    return Response.json(request.url.endsWith("/alert-rules") ? [{ ...RULE, threshold: 40 }] : []);
  };
  return bodies;
});

test("a rule that is disabled keeps a threshold that somebody else changed meanwhile", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  queryClient.setQueryData(rulesQuery.queryKey, [RULE as unknown as Rule]);
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <Rules />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await userEvent.click(screen.getByRole("checkbox", { name: "drops enabled" }));
  await waitFor(() => expect(put).toMatchObject([{ threshold: 40, enabled: false }]));
});
