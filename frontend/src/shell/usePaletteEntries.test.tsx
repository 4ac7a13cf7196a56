import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import {
  createMemoryHistory,
  createRootRoute,
  createRoute,
  createRouter,
  Outlet,
  RouterProvider,
} from "@tanstack/react-router";
import { act, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { meQuery, nodeQuery, queryClient } from "../api/queries";
import { simulatedNodesQuery } from "../settings/simulatedNodes";
import { usePaletteEntries } from "./usePaletteEntries";

const requests = vi.hoisted(() => {
  const methods: string[] = [];
  globalThis.fetch = (input) => {
    methods.push((input as Request).method);
    return new Promise(() => undefined);
  };
  return methods;
});

afterEach(() => void vi.useRealTimers());

/** A button for an action of the palette. */
function Action({ named }: { named: string }) {
  const found = usePaletteEntries("").find(({ text }) => text === named);
  return (
    found && (
      <button type="button" onClick={() => void found.go()}>
        {named}
      </button>
    )
  );
}

async function press(named: string) {
  const root = createRootRoute({ component: Outlet });
  const shell = createRoute({ getParentRoute: () => root, id: "shell", component: Outlet });
  const node = createRoute({
    getParentRoute: () => shell,
    path: "nodes/$nodeId",
    params: { parse: ({ nodeId }) => ({ nodeId: Number(nodeId) }) },
    component: () => <Action named={named} />,
  });
  const settings = createRoute({ getParentRoute: () => shell, path: "settings/nodes" });
  const router = createRouter({
    routeTree: root.addChildren([shell.addChildren([node, settings])]),
    history: createMemoryHistory({ initialEntries: ["/nodes/5"] }),
  });
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const button = await screen.findByRole("button", { name: named });
  await act(async () => fireEvent.click(button));
  return router.state.location;
}

test("a pause from the palette ends with the node's time, as its samples have it", async () => {
  vi.useFakeTimers({ toFake: ["Date"], now: 1_000_000_000 });
  queryClient.setQueryData(nodeQuery(5).queryKey, { id: 5, name: "db-1", clock_skew_ms: -5_000 } as Schemas["Node"]);
  const { search } = await press("Pause");
  expect(search).toEqual({ from: 999_695_000, to: 999_995_000 });
});

test("the palette leads to where simulated nodes are removed, and removes none", async () => {
  queryClient.setQueryData(simulatedNodesQuery.queryKey, {
    ...{ offered: 50, nodes: 50, running: true, failure: null, unavailable_because: null },
  });
  const { pathname } = await press("Remove simulated nodes…");
  expect(pathname).toBe("/settings/nodes");
  expect(requests).not.toContain("DELETE");
});
