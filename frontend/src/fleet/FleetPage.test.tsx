import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import {
  createMemoryHistory,
  createRootRoute,
  createRoute,
  createRouter,
  RouterProvider,
} from "@tanstack/react-router";
import { render, waitFor } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { queryClient } from "../api/queries";
import { fleetProofQuery } from "../policies/queries";
import { FleetPage } from "./FleetPage";

vi.mock("./Figures", () => ({ Figures: () => null }));
vi.mock("./FleetSavings", () => ({ FleetSavings: () => null }));
vi.mock("./FleetTime", () => ({ FleetTime: () => null, useMoment: () => null }));
vi.mock("./Outliers", () => ({ Outliers: () => null }));

test.each([
  [2, 2],
  [9, 2],
])("page %d of a table with 60 nodes is page %d", async (page, shown) => {
  globalThis.fetch = async (input) => {
    if (!new URL((input as Request).url).pathname.endsWith("/fleet")) return new Promise(() => undefined);
    const counts = { nodes: 60, cpus: 60, simulated: 0, totals: { nodes: 60, health: { new: 0 } } };
    return Response.json({ ...counts, rows: [], hot_spots: [], problems: [] });
  };
  queryClient.setQueryData(fleetProofQuery.queryKey, {} as never);
  const root = createRootRoute();
  const shell = createRoute({ getParentRoute: () => root, id: "shell" });
  const fleet = createRoute({ getParentRoute: () => shell, path: "fleet", component: FleetPage });
  const router = createRouter({
    routeTree: root.addChildren([shell.addChildren([fleet])]),
    history: createMemoryHistory({ initialEntries: [`/fleet?view=table&page=${page}`] }),
  });
  const { findByText } = render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await findByText("51–60 of 60");
  await waitFor(() => expect(router.state.location.search).toEqual({ view: "table", page: shown }));
});
