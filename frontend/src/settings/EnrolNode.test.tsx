import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeAll, expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { EnrolNode } from "./EnrolNode";

vi.hoisted(() => {
  const created = { command: "coresteer-agent …", max_uses: 1, expires_at: "2026-11-30T10:00:00Z" };
  globalThis.fetch = async () => Response.json(created, { status: 201 });
});

beforeAll(() => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
});

test.each([
  ["a node", "Show the command", false],
  ["simulated nodes", "Create the command", true],
] as const)("at a loopback address the command for %s warns of other machines", async (_, button, simulated) => {
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <EnrolNode simulated={simulated} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await userEvent.click(screen.getByRole("button", { name: button }));
  expect(await screen.findByText(/^Other machines cannot reach localhost/)).toBeTruthy();
});
