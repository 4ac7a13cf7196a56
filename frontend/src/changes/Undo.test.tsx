import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { render, screen } from "@testing-library/react";
import { test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { nodeQuery, queryClient } from "../api/queries";
import { writtenSettingsQuery } from "./queries";
import { UndoPanel } from "./Undo";

vi.hoisted(() => {
  globalThis.fetch = () => new Promise(() => undefined);
});

test("a restore of more settings than a plan has room for says how many it restores", async () => {
  const value = { value: "2", at: null, by: null, policy_id: null };
  const written = Array.from({ length: 300 }, (_, irq) => ({ key: `irq/${irq}/affinity`, values: [value] }));
  queryClient.setQueryData(nodeQuery(5).queryKey, { id: 5, name: "db-1", labels: {} } as Schemas["Node"]);
  queryClient.setQueryData(writtenSettingsQuery(5).queryKey, written);
  const router = createRouter({
    routeTree: createRootRoute({ component: () => <UndoPanel undo="node:5" onClose={() => undefined} /> }),
    history: createMemoryHistory(),
  });
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await screen.findByText("The first 64 of 300 settings; open this again for the others.");
});
