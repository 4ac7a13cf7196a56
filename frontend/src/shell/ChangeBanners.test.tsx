import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { act, fireEvent, render, screen } from "@testing-library/react";
import { afterEach, beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../api/client";
import { meQuery, nodeSummaryQuery, openChangesQuery, queryClient } from "../api/queries";
import { applyChangeUpdate } from "../live/changes";
import { ChangeBanners } from "./ChangeBanners";

type Change = Schemas["Change"];

const change = (more: Partial<Change> = {}): Change => ({
  id: "a",
  node_id: 12,
  node_name: "db-17",
  plan: { actions: [], allow_isolated: false },
  sentence: "IRQ 41 changes from CPU 2 to CPU 6.",
  state: "unconfirmed",
  status: "unconfirmed",
  undone: null,
  ended_by: null,
  created_by: "ann",
  policy_id: null,
  experiment_id: null,
  undoes: null,
  restores: false,
  reason: "",
  created_at: "2026-11-21T08:00:00Z",
  applied_at: null,
  ended_at: null,
  deadline_at: null,
  remaining_s: 82,
  confirm_timeout_s: 120,
  guardrails: [],
  results: [],
  steps: [],
  observation: null,
  ...more,
});

/** A fake backend: records requests and answers by the end of the path. */
const backend = vi.hoisted(() => {
  const state = { requests: [] as string[], answers: {} as Record<string, () => Promise<Response>> };
  globalThis.fetch = async (input) => {
    const request = input as Request;
    state.requests.push(`${request.method} ${new URL(request.url).pathname}`);
    const found = Object.entries(state.answers).find(([path]) => request.url.endsWith(path));
    return found ? found[1]() : Response.json({});
  };
  return state;
});

async function show(role: Schemas["Role"], ...changes: Change[]) {
  queryClient.setQueryData(meQuery.queryKey, { username: "ann", role, limits: [], csrf_token: "token", issuer: null });
  for (const { node_id } of changes) queryClient.setQueryData(nodeSummaryQuery(node_id).queryKey, null);
  queryClient.setQueryData(openChangesQuery.queryKey, { changes, older: null });
  const router = createRouter({
    routeTree: createRootRoute({ component: ChangeBanners }),
    history: createMemoryHistory(),
  });
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        {/* never: the app's own router is registered as the only type of router */}
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  await pass(0);
}

const pass = (ms: number) => act(() => vi.advanceTimersByTimeAsync(ms));
const press = async (name: string) => {
  fireEvent.click(screen.getByRole("button", { name }));
  await pass(0);
};
const json = (body: unknown, status = 200, type = "application/json") =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": type } });

beforeEach(() => {
  vi.useFakeTimers();
  backend.answers = {};
  backend.requests.length = 0;
});

afterEach(() => {
  act(() => vi.runOnlyPendingTimers());
  queryClient.clear();
  vi.useRealTimers();
});

test("the remaining time counts down and stops at zero", async () => {
  await show("operator", change());
  expect(screen.getByText("1:22")).toBeTruthy();
  await pass(2_000);
  expect(screen.getByText("1:20")).toBeTruthy();
  await pass(90_000);
  expect(screen.getByText("0:00")).toBeTruthy();
});

test("the last 15 s are announced once", async () => {
  await show("operator", change());
  expect(screen.getByRole("alert").textContent).toBe("");
  await pass(68_000);
  const announced = screen.getByRole("alert").textContent;
  expect(announced).toBe("Rolls back in 15 seconds unless confirmed: IRQ 41 changes from CPU 2 to CPU 6.");
  await pass(5_000);
  expect(screen.getByRole("alert").textContent).toBe(announced);
});

test("of several changes the one that ends first is shown, the others on request", async () => {
  const plan = { actions: [{ key: "irq/7/affinity", was: "0", becomes: "1", reason: "" }], allow_isolated: false };
  await show(
    "operator",
    change({ deadline_at: "2026-11-21T08:02:00Z" }),
    change({ id: "b", node_name: "db-2", plan, deadline_at: "2026-11-21T08:01:00Z" }),
  );
  expect(screen.getByRole("link", { name: /IRQ 7\s*CPU 0 → 1/ })).toBeTruthy();
  expect(screen.getAllByRole("button", { name: "Confirm" })).toHaveLength(1);
  await press("1 more unconfirmed");
  expect(screen.getAllByRole("button", { name: "Confirm" })).toHaveLength(2);
});

test("the time of a change counts from its arrival, not from when it is first shown", async () => {
  await show("operator", change(), change({ id: "b" }));
  await pass(60_000);
  await press("1 more unconfirmed");
  expect(screen.getAllByText("0:22")).toHaveLength(2);
});

test("a policy's change needs no confirmation", async () => {
  await show("operator", change({ policy_id: 3, created_by: "policy spread v1" }), change({ id: "b" }));
  expect(screen.getAllByRole("button", { name: "Confirm" })).toHaveLength(1);
});

test("a viewer sees why the buttons are disabled", async () => {
  await show("viewer", change());
  for (const name of ["Confirm", "Undo", "+2\u00a0min"])
    expect(screen.getByRole("button", { name }).hasAttribute("disabled")).toBe(true);
  expect(screen.getByText("Confirming or undoing requires the operator role.")).toBeTruthy();
});

test("a confirmation is shown only after the backend's response", async () => {
  let answer: (response: Response) => void = () => undefined;
  backend.answers["/confirm"] = () => new Promise((resolve) => (answer = resolve));
  await show("operator", change());
  await press("Confirm");
  expect(backend.requests).toContain("POST /api/v1/changes/a/confirm");
  expect(screen.queryByText("Confirmed.")).toBeNull();
  expect(screen.getByRole("button", { name: "Undo" }).hasAttribute("disabled")).toBe(true);
  answer(json(change({ state: "confirmed", ended_by: "user", remaining_s: null })));
  await pass(0);
  expect(screen.getByText("Confirmed.")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Confirm" })).toBeNull();
});

test("a refused request shows its reason and the change stays open", async () => {
  backend.answers["/rollback"] = async () =>
    json(
      { type: "urn:coresteer:node-away", title: "Away", status: 503, detail: "db-17 is not connected." },
      503,
      "application/problem+json",
    );
  await show("operator", change());
  await press("Undo");
  expect(screen.getByText("db-17 is not connected.").getAttribute("role")).toBe("alert");
  expect(screen.getByRole("button", { name: "Confirm" }).hasAttribute("disabled")).toBe(false);
});

test("an extension takes the remaining time from the response", async () => {
  backend.answers["/extend"] = async () => json(change({ remaining_s: 200 }));
  await show("operator", change());
  await press("+2\u00a0min");
  expect(screen.getByText("3:20")).toBeTruthy();
});

test("a change rolled back on timeout is shown for a few seconds", async () => {
  await show("operator", change());
  act(() => applyChangeUpdate(change({ state: "rolled_back", ended_by: "timeout", remaining_s: null })));
  await pass(0);
  expect(screen.getByText("Rolled back: not confirmed within 2 min.")).toBeTruthy();
  expect(screen.queryByRole("button", { name: "Confirm" })).toBeNull();
  await pass(11_000);
  expect(screen.queryByText("Rolled back: not confirmed within 2 min.")).toBeNull();
});

test("a change that was rolled back after an extension names the whole time", async () => {
  const times = { applied_at: "2026-11-21T08:00:00Z", deadline_at: "2026-11-21T08:04:00Z" };
  await show("operator", change());
  act(() => applyChangeUpdate(change({ ...times, state: "rolled_back", ended_by: "timeout", remaining_s: null })));
  await pass(0);
  expect(screen.getByText("Rolled back: not confirmed within 4 min.")).toBeTruthy();
});

test("a change that ended before is not shown when its observation arrives", async () => {
  await show("operator");
  act(() => applyChangeUpdate(change({ state: "rolled_back", ended_by: "user", remaining_s: null })));
  await pass(0);
  expect(screen.queryByText("Rolled back by a user.")).toBeNull();
});

test("an outcome missed while disconnected is fetched and shown", async () => {
  backend.answers["/changes/a"] = async () =>
    json(change({ state: "rolled_back", ended_by: "lost_backend", remaining_s: null }));
  await show("operator", change());
  act(() => queryClient.setQueryData(openChangesQuery.queryKey, { changes: [], older: null }));
  await pass(0);
  expect(backend.requests).toContain("GET /api/v1/changes/a");
  expect(screen.getByText("Rolled back: the node lost the backend before confirmation.")).toBeTruthy();
});

test("a response older than the last live event is ignored", async () => {
  const at = "2026-11-21T08:00:00Z";
  const applying = { at, state: "applying" as const, sentence: "Sent to the agent." };
  const applied = { at, state: "unconfirmed" as const, sentence: "Applied and read back." };
  await show("operator");
  act(() => applyChangeUpdate(change({ steps: [applying, applied] })));
  act(() => applyChangeUpdate(change({ state: "applying", steps: [applying] })));
  await pass(0);
  expect(screen.getAllByRole("button", { name: "Confirm" })).toHaveLength(1);
});
