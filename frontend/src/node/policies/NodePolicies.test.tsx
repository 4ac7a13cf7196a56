import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { PERSISTED_POLICY_ID } from "../../api/constants";
import { queryClient } from "../../api/queries";
import { decisionsQuery, driftsQuery, latestDecisionsQuery, recommendationsQuery } from "../../policies/queries";
import type { Decision } from "../../policies/types";
import type { NodeView } from "../nodeView";
import { Head, NodePolicies } from "./NodePolicies";

vi.mock("@tanstack/react-router", () => ({ Link: "a" }));

const decision = (id: number, policyId: number, name: string): Decision =>
  ({
    ...{ id, policy_id: policyId, policy_name: name, version: 1, mode: "observe", at: new Date().toISOString() },
    evaluation: { sentence: "", actions: [], deferred: [], skipped: [], drifts: [], controllers: [] },
    ...{ outcome: null, holdout: null },
  }) as unknown as Decision;

test("policies are listed by name with their latest decisions, also those behind 20 newer ones of another", () => {
  const busy = Array.from({ length: 20 }, (_, at) => decision(100 - at, 2, "spread 10"));
  queryClient.setQueryData(decisionsQuery(1, null).queryKey, busy);
  queryClient.setQueryData(latestDecisionsQuery(1).queryKey, [
    decision(100, 2, "spread 10"),
    decision(7, 1, "spread 9"),
  ]);
  queryClient.setQueryData(recommendationsQuery(1).queryKey, []);
  queryClient.setQueryData(driftsQuery(1).queryKey, []);
  render(
    <QueryClientProvider client={queryClient}>
      <NodePolicies view={{ node: { id: 1 }, navigate: () => undefined } as unknown as NodeView} />
    </QueryClientProvider>,
  );
  const listed = screen.getAllByRole("article").map((article) => article.getAttribute("aria-label"));
  expect(listed).toEqual(["spread 9", "spread 10"]);
});

test("persisted settings are named without a link and a version, because no policy has that id", () => {
  const decision = {
    policy_id: PERSISTED_POLICY_ID,
    policy_name: "persisted settings",
    version: 1,
    mode: "enforce",
    at: new Date().toISOString(),
    outcome: null,
    holdout: null,
  } as Decision;
  const { container } = render(<Head decision={decision} />);
  expect(container.querySelector("a")).toBeNull();
  expect(container.textContent).toMatch(/^persisted settings enforce/);
});
