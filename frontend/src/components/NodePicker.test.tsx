import { MantineProvider } from "@mantine/core";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { nodesQuery } from "../api/queries";
import { NodePicker } from "./NodePicker";

const NODES = [
  { id: 1, name: "db-1" },
  { id: 2, name: "web-1" },
] as Schemas["NodeSummary"][];

function setUp() {
  const client = new QueryClient({ defaultOptions: { queries: { enabled: false } } });
  const onPick = vi.fn();
  render(
    <MantineProvider>
      <QueryClientProvider client={client}>
        <NodePicker label="Node" placeholder="by name" onPick={onPick} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const load = () => act(async () => client.setQueryData(nodesQuery.queryKey, NODES));
  return { input: screen.getByRole<HTMLInputElement>("combobox"), load, onPick };
}

test("a full name selects its node, Enter the first match", async () => {
  const { input, load, onPick } = setUp();
  await load();
  await userEvent.type(input, "web-1");
  expect(onPick.mock.calls).toEqual([[2]]);
  expect(input.value).toBe("");
  await userEvent.type(input, "DB{Enter}");
  expect(onPick.mock.calls).toEqual([[2], [1]]);
  await userEvent.type(input, "mail{Enter}");
  expect(screen.getByText("No node has this name.")).toBeDefined();
  expect(onPick).toHaveBeenCalledTimes(2);
});

test.each(["web-1", "web{Enter}"])("%s typed before the nodes are loaded selects its node", async (typed) => {
  const { input, load, onPick } = setUp();
  await userEvent.type(input, typed);
  expect(screen.queryByText("No node has this name.")).toBeNull();
  await load();
  await waitFor(() => expect(onPick.mock.calls).toEqual([[2]]));
  expect(input.value).toBe("");
});
