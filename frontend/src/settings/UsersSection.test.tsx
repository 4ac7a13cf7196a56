import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { UsersSection } from "./UsersSection";

/** A fake backend with one user; it records the bodies of changes. */
const patched = vi.hoisted(() => {
  const bodies: unknown[] = [];
  const bob = {
    ...{ id: 2, username: "bob", role: "viewer", role_labels: {}, disabled: false, issuer: null },
    ...{ last_login_at: null, created_at: "2026-11-21T08:00:00Z" },
  };
  globalThis.fetch = async (input) => {
    const request = input as Request;
    if (request.method === "PATCH") bodies.push(await request.json());
    return Response.json([bob]);
  };
  return bodies;
});

test("a role that is selected is given only after a question", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <UsersSection />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await userEvent.selectOptions(await screen.findByRole("combobox", { name: "Role of bob" }), "admin");
  expect(patched).toEqual([]);
  await userEvent.click(screen.getByRole("button", { name: "Make admin" }));
  await waitFor(() => expect(patched).toEqual([{ role: "admin" }]));
});
