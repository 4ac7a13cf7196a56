import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../../api/client";
import { meQuery, openChangesQuery, queryClient } from "../../api/queries";
import { applyChangeUpdate } from "../../live/changes";
import { change } from "../testData";
import { ApplyPlan } from "./ApplyPlan";

/** A fake backend: what the interrupt's CPUs are, why no change can be applied, and its response to one. */
const backend = vi.hoisted(() => {
  const state = { was: "0", blocked: null as string | null, applied: () => new Response() };
  globalThis.fetch = async (input) => {
    if (!(input as Request).url.endsWith("/previews")) return state.applied();
    const action = { key: "irq/41/affinity", was: state.was, becomes: "2", reason: "" };
    return Response.json({
      plan: { actions: state.was === "2" ? [] : [action], allow_isolated: false },
      ...{ sentence: "", commands: [], expected: [], warnings: [], refused: [] },
      ...{ can_apply: state.blocked === null, blocked_because: state.blocked },
    });
  };
  return state;
});

beforeEach(() => {
  queryClient.clear();
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "admin", limits: [], csrf_token: "token", issuer: null },
  });
  queryClient.setQueryData(openChangesQuery.queryKey, { changes: [], older: null });
  Object.assign(backend, { was: "0", blocked: null });
});

function show() {
  const node = { id: 1, mode: "full", health: "live", labels: {} } as Schemas["Node"];
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <ApplyPlan node={node} desired={[{ key: "irq/41/affinity", value: "2" }]} reason="" />
      </QueryClientProvider>
    </MantineProvider>,
  );
}
const apply = () => screen.getByRole<HTMLButtonElement>("button", { name: /^Apply/ });

test("a plan that an open change blocks can be applied when that change has ended", async () => {
  backend.blocked = "It is part of an open change.";
  show();
  await screen.findByText(backend.blocked);
  backend.blocked = null;
  act(() => applyChangeUpdate(change({ node_id: 1, state: "confirmed" })));
  await waitFor(() => expect(apply().disabled).toBe(false));
});

test("a plan whose values have changed since is previewed again when it is refused", async () => {
  show();
  await screen.findByRole("cell", { name: "0" });
  backend.was = "3";
  backend.applied = () =>
    Response.json(
      { detail: "Preview it again." },
      { status: 409, headers: { "content-type": "application/problem+json" } },
    );
  await userEvent.click(apply());
  await screen.findByRole("cell", { name: "3" });
  expect(screen.getByRole("alert").textContent).toBe("Preview it again.");
  expect(apply().disabled).toBe(false);
});

test("the plan that was applied stays shown", async () => {
  show();
  await screen.findByRole("cell", { name: "0" });
  backend.was = "2";
  backend.applied = () => Response.json(change({ node_id: 1, state: "unconfirmed" }));
  await userEvent.click(apply());
  await screen.findByText(/^Applied\./);
  await waitFor(() => expect(queryClient.isFetching()).toBe(0));
  screen.getByRole("cell", { name: "0" });
});
