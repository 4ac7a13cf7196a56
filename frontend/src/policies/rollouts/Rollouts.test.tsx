import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { beforeEach, expect, test, vi } from "vitest";
import type { Schemas } from "../../api/client";
import { meQuery, queryClient } from "../../api/queries";
import { newDraft, readBody } from "../editor/policyDraft";
import { rolloutQuery } from "../queries";
import type { Policy, PolicyBody, Rollout } from "../types";
import { Rollouts } from "./Rollouts";

/** A fake backend that records the bodies of what is posted. */
const posted = vi.hoisted(() => {
  const bodies: unknown[] = [];
  globalThis.fetch = async (input) => {
    const request = input as Request;
    if (request.method !== "POST") return new Promise(() => undefined);
    bodies.push(await request.json());
    return Response.json({});
  };
  return bodies;
});

beforeEach(() => {
  posted.length = 0;
});

function show(limits: Schemas["Me"]["limits"]) {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "operator", limits, csrf_token: "token", issuer: null },
  });
  const rollout: Rollout = {
    ...{ id: 9, policy_id: 7, from_version: 3, to_version: 4, state: "batches", stage: 1, done_nodes: [1] },
    ...{ stages: [[1], [2, 3], [4, 5]], sentence: "Stage 2 of 3.", wait_s: 60, guardrails: [], evidence: [] },
    ...{ stage_at: "2026-11-21T08:00:00Z", started_at: "2026-11-21T08:00:00Z", started_by: "bob", ended_at: null },
  };
  queryClient.setQueryData(rolloutQuery(9).queryKey, rollout);
  const draft = newDraft("irq-spread");
  const body = readBody({ ...draft, values: { ...draft.values, name: "spread" } }).body as PolicyBody;
  const policy = { id: 7, body: { ...body, selector: { ...body.selector, labels: { role: "db" } } }, rollout };
  render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <Rollouts policy={policy as unknown as Policy} versions={[]} search={{}} navigate={() => undefined} />
      </QueryClientProvider>
    </MantineProvider>,
  );
}

test("a rollout is rolled back only after a question with the number of its nodes", async () => {
  show([]);
  await userEvent.click(screen.getByRole("button", { name: "Stop and roll back" }));
  expect(posted).toEqual([]);
  await userEvent.click(screen.getByRole("button", { name: "Roll back on 3 nodes" }));
  await waitFor(() => expect(posted).toEqual([{ roll_back: true }]));
});

test("an operator of other nodes cannot stop a rollout, and reads why", () => {
  show([{ role: "web" }]);
  expect(screen.getByRole("button", { name: "Stop" }).hasAttribute("disabled")).toBe(true);
  expect(screen.getByRole("button", { name: "Stop and roll back" }).hasAttribute("disabled")).toBe(true);
  expect(screen.getByText(/^You are operator of role=web only\./)).toBeTruthy();
});
