import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { NodesSection } from "./NodesSection";

/** A fake backend with a number of nodes. */
const fleet = vi.hoisted(() => {
  const state = { nodes: 51 };
  globalThis.fetch = (input) => {
    const { pathname, searchParams } = new URL((input as Request).url);
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

test("the page before is shown after the only node of the last one is deleted", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "viewer", limits: [], csrf_token: "token", issuer: null },
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
  await userEvent.click(await screen.findByRole("button", { name: "Next" }));
  await screen.findByText("node-50");
  fleet.nodes = 50;
  await act(() => queryClient.invalidateQueries({ queryKey: ["fleet"] }));
  await screen.findByText("node-49");
});
