import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { fleetSizeQuery, meQuery, queryClient } from "../api/queries";
import { RemoveSimulated } from "./RemoveSimulated";
import { SimulatedNodes } from "./SimulatedNodes";
import { simulatedNodesQuery } from "./simulatedNodes";

const backend = vi.hoisted(() => {
  const state = { deletions: 0, answer: () => undefined as unknown };
  globalThis.fetch = async (input) => {
    if ((input as Request).method !== "DELETE") return Response.json({ simulated: 0 });
    state.deletions += 1;
    await new Promise((resolve) => (state.answer = () => resolve(undefined)));
    return new Response(null, { status: 204 });
  };
  return state;
});

/** As the fleet page: the step or note with the button goes away as nodes come and go, the dialog does not. */
function Page({ hasButton }: { hasButton: boolean }) {
  const [isRemoving, setRemoving] = useState(false);
  return (
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        {hasButton && <SimulatedNodes onRemove={() => setRemoving(true)} />}
        {isRemoving && <RemoveSimulated onClose={() => setRemoving(false)} />}
      </QueryClientProvider>
    </MantineProvider>
  );
}

test("simulated nodes are removed after a question with their number, which stays until they are", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  queryClient.setQueryData(simulatedNodesQuery.queryKey, {
    ...{ offered: 50, nodes: 50, running: true, failure: null, unavailable_because: null },
  });
  queryClient.setQueryData(fleetSizeQuery.queryKey, { simulated: 50 } as Schemas["FleetAnswer"]);
  const { rerender } = render(<Page hasButton />);
  await userEvent.click(screen.getByRole("button", { name: "Remove 50 simulated nodes" }));
  expect(screen.getByText("This ends the simulation and deletes 50 simulated nodes with their history.")).toBeTruthy();
  expect(backend.deletions).toBe(0);
  rerender(<Page hasButton={false} />);
  await userEvent.click(screen.getByRole("button", { name: "Remove" }));
  await waitFor(() => expect(backend.deletions).toBe(1));
  expect(screen.getByRole("button", { name: "Remove" }).hasAttribute("data-loading")).toBe(true);
  backend.answer();
  await waitFor(() => expect(screen.queryByRole("dialog")).toBeNull());
});
