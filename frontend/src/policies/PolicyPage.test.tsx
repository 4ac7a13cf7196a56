import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import {
  createMemoryHistory,
  createRootRoute,
  createRoute,
  createRouter,
  RouterProvider,
} from "@tanstack/react-router";
import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { newDraft, readBody } from "./editor/policyDraft";
import { PolicyPage } from "./PolicyPage";
import { approvalsQuery, policyQuery, versionsQuery } from "./queries";
import { validatePolicySearch } from "./search";
import type { Policy, PolicyBody, PolicyVersion } from "./types";

const draft = newDraft("irq-spread");
const bodyOf = (name: string) =>
  readBody({ ...draft, values: { ...draft.values, mode: "observe", name } }).body as PolicyBody;

/** What the backend says when the newest version has a name. */
function answer(versions: string[]) {
  const known = versions.map((name, place) => ({ version: place + 1, body: bodyOf(name) }) as PolicyVersion);
  const policy = { id: 7, name: "spread", version: 1, versions: versions.length, body: bodyOf("spread") };
  queryClient.setQueryData(policyQuery(7).queryKey, {
    ...{ ...policy, enabled: false, nodes: 0, in_force: [], rollout: null, rolled_back: null },
  } as unknown as Policy);
  queryClient.setQueryData(versionsQuery(7).queryKey, known.toReversed());
}

test("a version that another user saves does not replace what is edited", async () => {
  globalThis.fetch = () => new Promise(() => undefined);
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "operator", limits: [], csrf_token: "", issuer: null },
  });
  queryClient.setQueryData(approvalsQuery.queryKey, []);
  answer(["one"]);
  const root = createRootRoute();
  const shell = createRoute({ getParentRoute: () => root, id: "shell" });
  const page = createRoute({
    getParentRoute: () => shell,
    path: "policies/$policyId",
    params: { parse: () => ({ policyId: 7 }) },
    validateSearch: validatePolicySearch,
    component: PolicyPage,
  });
  const router = createRouter({
    routeTree: root.addChildren([shell.addChildren([page])]),
    history: createMemoryHistory({ initialEntries: ["/policies/7?tab=edit"] }),
  });
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        {/* never: the app's own router is registered as the only type of router */}
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const name = await screen.findByLabelText<HTMLInputElement>("Name");
  await userEvent.type(name, "!");
  act(() => answer(["one", "two"]));
  await screen.findByText(/^Edited from version 1; the latest is 2/);
  expect(name.value).toBe("one!");
});
