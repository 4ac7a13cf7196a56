import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { NodesSection } from "./NodesSection";

/** A fake backend with a number of nodes. */
const fleet = vi.hoisted(() => {
  const EXPIRES = "2026-11-21T08:00:00Z";
  const state = { nodes: 51, readmits: null as string | null };
  globalThis.fetch = (input) => {
    const { pathname, searchParams } = new URL((input as Request).url);
    if (pathname.endsWith("/readmit")) {
      state.readmits = "node-3";
      return Promise.resolve(Response.json({ command: "enrol", expires_at: EXPIRES }));
    }
    if (pathname.endsWith("/enrolment-tokens"))
      return Promise.resolve(
        Response.json(
          state.readmits === null
            ? []
            : [{ id: 7, node_name: state.readmits, last_used_at: null, expires_at: EXPIRES }],
        ),
      );
    if (!pathname.endsWith("/fleet")) return new Promise(() => undefined);
    const [offset, limit] = [Number(searchParams.get("offset")), Number(searchParams.get("limit"))];
    const rows = Array.from({ length: state.nodes }, (_, id) => ({
      ...{ id, name: `node-${id}`, health: "away", agent_version: null, mode: null, observe_reason: null, labels: {} },
      ...{ clock_skew_ms: null, clock_correction_ms: 0, last_seen_at: null, simulated: false },
    })).slice(offset, offset + limit);
    return Promise.resolve(
      Response.json({ rows, nodes: state.nodes, totals: { nodes: state.nodes }, problems: [], simulated: 0 }),
    );
  };
  return state;
});

/** Shows the section to a user of a role. */
function show(role: "viewer" | "admin") {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role, limits: [], csrf_token: "token", issuer: null },
  });
  const router = createRouter({
    routeTree: createRootRoute({ component: NodesSection }),
    history: createMemoryHistory(),
  });
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
}

test("the page before is shown after the only node of the last one is deleted", async () => {
  show("viewer");
  await userEvent.click(await screen.findByRole("button", { name: "Next" }));
  await screen.findByText("node-50");
  fleet.nodes = 50;
  await act(() => queryClient.invalidateQueries({ queryKey: ["fleet"] }));
  await screen.findByText("node-49");
});

test.each(["Revoke key of node-3", "Delete node-3"])("who chooses “%s” reads that its policies go on", async (name) => {
  show("admin");
  await userEvent.click(await screen.findByRole("button", { name }));
  await screen.findByText(/goes on with the policies that it has/);
});

test("the token of a readmission is listed, and the focus returns to the button of its dialog", async () => {
  show("admin");
  const button = await screen.findByRole("button", { name: "Readmit node-3" });
  await screen.findByText("No enrolment tokens.");
  await userEvent.click(button);
  await userEvent.click(await screen.findByRole("button", { name: "Create the command" }));
  await screen.findByText("Enrols node-3 again, whose key so far ends.");
  await userEvent.click(screen.getByRole("button", { name: "Close" }));
  expect(document.activeElement).toBe(button);
});
