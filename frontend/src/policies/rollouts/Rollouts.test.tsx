import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen, waitFor } from "@testing-library/react";
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
  queryClient.clear();
});

function show(limits: Schemas["Me"]["limits"]) {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "operator", limits, csrf_token: "token", issuer: null },
  });
  const rollout: Rollout = {
    ...{ id: 9, policy_id: 7, from_version: 3, to_version: 4, state: "batches", stage: 1, done_nodes: [1] },
    ...{ stages: [[1], [2, 3], [4, 5]], sentence: "Stage 2 of 3.", guardrails: [], evidence: [] },
    ...{ wait_s: 60, remaining_s: 40 },
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

test("a stage counts down from the answer, whatever the browser's clock says", () => {
  vi.useFakeTimers({ now: Date.parse("2001-01-01T00:00:00Z") });
  show([]);
  expect(screen.getByText("stage 2 of 3, next in 0:40")).toBeTruthy();
  act(() => void vi.advanceTimersByTime(10_000));
  expect(screen.getByText("in progress, 0:30 left")).toBeTruthy();
  act(() => void vi.advanceTimersByTime(30_000));
  expect(screen.getByText("stage 2 of 3, waits for the samples of its nodes")).toBeTruthy();
  vi.useRealTimers();
});

test("what rolls a rollout back by itself is named, also without guardrails", () => {
  show([]);
  const sentence = "Rolled back automatically if a node stays disconnected or a stage makes the nodes worse.";
  expect(screen.getByText(sentence)).toBeTruthy();
});

test("an operator of other nodes cannot stop a rollout, and reads why", () => {
  show([{ role: "web" }]);
  expect(screen.getByRole("button", { name: "Stop" }).hasAttribute("disabled")).toBe(true);
  expect(screen.getByRole("button", { name: "Stop and roll back" }).hasAttribute("disabled")).toBe(true);
  expect(screen.getByText(/^You are operator of role=web only\./)).toBeTruthy();
});
