import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../../api/queries";
import { newDraft, readBody } from "../editor/policyDraft";
import { overviewQuery } from "../queries";
import type { Overview, Policy, PolicyBody } from "../types";
import { State } from "./State";

/** A fake backend that records what is posted. */
const posted = vi.hoisted(() => {
  const paths: string[] = [];
  globalThis.fetch = async (input) => {
    const { method, url } = input as Request;
    if (method === "POST") paths.push(new URL(url).pathname);
    return Response.json({ nodes: [], closed: null });
  };
  return paths;
});

test("a dialog to disable a policy disables it, also if somebody else was faster", async () => {
  const draft = newDraft("irq-spread");
  const body = readBody({ ...draft, values: { ...draft.values, mode: "enforce", name: "spread" } }).body as PolicyBody;
  const policy = { id: 7, name: "spread", version: 1, body, enabled: true, nodes: 3, rollout: null } as Policy;
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "operator", limits: [], csrf_token: "token", issuer: null },
  });
  queryClient.setQueryData(overviewQuery(7).queryKey, { nodes: [], closed: null } as unknown as Overview);
  const shown = (now: Policy) => (
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <State policy={now}>-</State>
      </QueryClientProvider>
    </MantineProvider>
  );
  const { rerender } = render(shown(policy));
  await userEvent.click(screen.getByRole("button", { name: "Disable" }));
  expect(screen.getByText(/ later where a change window is closed or enforcement is stopped\.$/)).toBeTruthy();
  expect(screen.getByText("Disconnected nodes, on reconnect")).toBeTruthy();
  rerender(shown({ ...policy, enabled: false }));
  await userEvent.click(screen.getByRole("button", { name: /^Disable on/ }));
  expect(posted).toEqual(["/api/v1/policies/7/disable"]);
});
