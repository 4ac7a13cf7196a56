import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { ChangeWindows } from "./ChangeWindows";

/** The bodies of the windows that are created. */
const created = vi.hoisted(() => {
  const bodies: { name: string; labels: Record<string, string> }[] = [];
  globalThis.fetch = async (input) => {
    const request = input as Request;
    if (request.method === "POST") bodies.push(await request.json());
    return Response.json([]);
  };
  return bodies;
});

test("labels are typed in one go, and the field is empty again after a window was added", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <ChangeWindows />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const labels = () => screen.getByLabelText<HTMLInputElement>("Of nodes with labels");
  await userEvent.type(screen.getByLabelText(/^Name/), "databases");
  await userEvent.click(labels());
  await userEvent.keyboard("role=db rack=r0*");
  expect(labels().value).toBe("role=db rack=r0*");
  await userEvent.click(screen.getByRole("button", { name: "Add" }));
  await waitFor(() => expect(labels().value).toBe(""));
  expect(created.map(({ name, labels }) => [name, labels])).toEqual([["databases", { role: "db", rack: "r0*" }]]);
});
