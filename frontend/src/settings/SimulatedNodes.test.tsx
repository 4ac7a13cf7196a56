import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { fleetSizeQuery, meQuery, queryClient } from "../api/queries";
import { SimulatedNodes } from "./SimulatedNodes";
import { simulatedNodesQuery } from "./simulatedNodes";

const requests = vi.hoisted(() => {
  const methods: string[] = [];
  globalThis.fetch = async (input) => {
    methods.push((input as Request).method);
    return new Response(null, { status: 204 });
  };
  return methods;
});

test("simulated nodes are removed only after a question with their number", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  queryClient.setQueryData(simulatedNodesQuery.queryKey, {
    ...{ offered: 50, nodes: 50, running: true, failure: null, unavailable_because: null },
  });
  queryClient.setQueryData(fleetSizeQuery.queryKey, { simulated: 50 } as Schemas["FleetAnswer"]);
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <SimulatedNodes />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await userEvent.click(screen.getByRole("button", { name: "Remove 50 simulated nodes" }));
  expect(screen.getByText("This ends the simulation and deletes 50 simulated nodes with their history.")).toBeTruthy();
  expect(requests).toEqual([]);
  await userEvent.click(screen.getByRole("button", { name: "Remove" }));
  await waitFor(() => expect(requests[0]).toBe("DELETE"));
});
