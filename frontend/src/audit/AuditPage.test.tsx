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
import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { queryClient } from "../api/queries";
import { AuditPage } from "./AuditPage";

vi.hoisted(() => {
  globalThis.fetch = () => new Promise(() => undefined);
});

test("the fields of the audit log follow the address, also back to no filter", async () => {
  const root = createRootRoute({ component: Outlet });
  const shell = createRoute({ getParentRoute: () => root, id: "shell", component: Outlet });
  const audit = createRoute({ getParentRoute: () => shell, path: "audit", component: AuditPage });
  const router = createRouter({
    routeTree: root.addChildren([shell.addChildren([audit])]),
    history: createMemoryHistory({ initialEntries: ["/audit"] }),
  });
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const actor = await screen.findByRole<HTMLInputElement>("textbox", { name: "Actor" });
  await userEvent.type(actor, "ann{Enter}");
  expect(actor.value).toBe("ann");
  expect(router.state.location.search).toMatchObject({ actor: "ann" });
  await act(async () => router.history.back());
  expect(actor.value).toBe("");
});
