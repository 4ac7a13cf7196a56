import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { UsersSection } from "./UsersSection";

/** A fake backend with two users; it records the bodies of changes. */
const { patched, cyd } = vi.hoisted(() => {
  const patched: unknown[] = [];
  const bob = {
    ...{ id: 2, username: "bob", role: "viewer", role_labels: {}, disabled: false, issuer: null },
    ...{ last_login_at: null, created_at: "2026-11-21T08:00:00Z" },
  };
  const cyd = { ...bob, id: 3, username: "cyd", role: "operator", role_labels: { role: "db" } };
  globalThis.fetch = async (input) => {
    const request = input as Request;
    if (request.method === "PATCH") patched.push(await request.json());
    return Response.json([bob, cyd]);
  };
  return { patched, cyd };
});

beforeEach(() => {
  patched.length = 0;
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
});

test("a role that is selected is given only after a question", async () => {
  await userEvent.selectOptions(await screen.findByRole("combobox", { name: "Role of bob" }), "admin");
  expect(patched).toEqual([]);
  await userEvent.click(screen.getByRole("button", { name: "Make admin" }));
  await waitFor(() => expect(patched).toEqual([{ role: "admin" }]));
});

const labels = () => screen.findByRole<HTMLInputElement>("textbox", { name: /^Labels of .* cyd is operator$/ });

test("an operator of fewer nodes becomes one of all only after a question, not when the field is left", async () => {
  await userEvent.clear(await labels());
  await userEvent.tab();
  expect(screen.queryByRole("dialog")).toBeNull();
  await userEvent.type(await labels(), "{Enter}");
  screen.getByText("cyd, now operator of role=db, becomes operator of all nodes.");
  expect(patched).toEqual([]);
  await userEvent.click(screen.getByRole("button", { name: "Change" }));
  await waitFor(() => expect(patched).toEqual([{ role_labels: {} }]));
});

test("labels that are not edited follow those that others store", async () => {
  await labels();
  cyd.role_labels = { role: "web" };
  await act(() => queryClient.invalidateQueries({ queryKey: ["users"] }));
  await screen.findByDisplayValue("role=web");
});
