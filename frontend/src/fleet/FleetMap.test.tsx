import { MantineProvider } from "@mantine/core";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { act, render, waitFor } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { COLOURINGS } from "./colourings";
import { FleetMap } from "./FleetMap";
import { readMapColours } from "./fleetPainter";

vi.mock("./fleetPainter", () => ({ paintMap: vi.fn(), readMapColours: vi.fn() }));
vi.mock("@mantine/hooks", async (original) => ({
  ...(await original<object>()),
  useElementSize: () => ({ ref: () => undefined, width: 300 }),
}));

test("the map reads its colors again when the colors of the page change", async () => {
  const router = createRouter({
    routeTree: createRootRoute({ component: () => <FleetMap nodes={[]} colouring={COLOURINGS.softirq} /> }),
    history: createMemoryHistory(),
  });
  render(
    <MantineProvider>
      <RouterProvider router={router as never} />
    </MantineProvider>,
  );
  await waitFor(() => expect(readMapColours).toHaveBeenCalled());
  vi.mocked(readMapColours).mockClear();
  await act(async () => document.documentElement.setAttribute("data-mantine-color-scheme", "dark"));
  await waitFor(() => expect(readMapColours).toHaveBeenCalledOnce());
});
