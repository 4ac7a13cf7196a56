import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { queryClient } from "../api/queries";
import { EditLabels } from "./EditLabels";

const patched = vi.hoisted(() => {
  const bodies: unknown[] = [];
  globalThis.fetch = async (input) => {
    bodies.push(await (input as Request).json());
    return Response.json({});
  };
  return bodies;
});

test("labels with spaces and commas in their values can be edited", async () => {
  const node = { id: 5, name: "db-1", labels: { note: "row 2, left" } } as unknown as Schemas["NodeSummary"];
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <EditLabels node={node} onClose={() => undefined} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await userEvent.type(screen.getByRole("textbox", { name: "Labels" }), " role=db");
  await userEvent.click(screen.getByRole("button", { name: "Save" }));
  await waitFor(() => expect(patched).toEqual([{ labels: { note: "row 2, left", role: "db" } }]));
});
