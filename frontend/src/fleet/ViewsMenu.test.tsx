import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { fleetViewsQuery } from "./savedViews";
import { ViewsMenu } from "./ViewsMenu";

const VIEWS = vi.hoisted(() => [{ id: 3, name: "Hot", search: "sort=hot", shared: true, created_by: "bob" }]);

/** A fake backend that refuses to delete, and counts how often it is asked. */
const backend = vi.hoisted(() => {
  const state = { deletions: 0 };
  globalThis.fetch = async (input) => {
    if ((input as Request).method !== "DELETE") return Response.json(VIEWS);
    state.deletions += 1;
    const body = JSON.stringify({ type: "about:blank", title: "Not found", status: 404, detail: "It is gone." });
    return new Response(body, { status: 404, headers: { "content-type": "application/problem+json" } });
  };
  return state;
});

test("a shared view is deleted only after a question, which shows an error", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  queryClient.setQueryData(fleetViewsQuery.queryKey, VIEWS);
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <ViewsMenu search={{}} onChoose={() => undefined} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await userEvent.click(screen.getByRole("button", { name: "Views" }));
  await userEvent.click(screen.getByRole("button", { name: "Delete the view Hot" }));
  expect(screen.getByText("It is shared: everybody loses it.")).toBeTruthy();
  expect(backend.deletions).toBe(0);
  await userEvent.click(screen.getByRole("button", { name: "Delete" }));
  expect(await screen.findByText(/It is gone\./)).toBeTruthy();
});
