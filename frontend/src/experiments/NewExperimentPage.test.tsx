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
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { newDraft, readSpec } from "./form/specDraft";
import { NewExperimentPage } from "./NewExperimentPage";
import { validateNewSearch } from "./search";

/** A fake backend with two nodes, each with its own values in the template. */
const backend = vi.hoisted(() => {
  const state = { specs: {} as Record<string, unknown> };
  const [GONE, PROBLEM] = [{ detail: "It is gone." }, { "content-type": "application/problem+json" }];
  globalThis.fetch = async (input) => {
    const { pathname } = new URL((input as Request).url);
    const node = pathname.match(/nodes\/(\d+)\/experiment-templates$/)?.[1];
    if (node !== undefined)
      return Response.json([{ slug: "t", title: "T", differs: [], deviations: [], spec: state.specs[node] }]);
    if (pathname.endsWith("/application-metrics")) return Response.json([]);
    if (/\/(experiments\/17|changes\/gone)$/.test(pathname))
      return Response.json(GONE, { status: 404, headers: PROBLEM });
    if (pathname.endsWith("/fleet")) return Response.json({ nodes: 2, rows: [] });
    return new Promise<Response>(() => undefined);
  };
  return state;
});

async function show(path: string) {
  const root = createRootRoute();
  const shell = createRoute({ getParentRoute: () => root, id: "shell" });
  const page = createRoute({
    getParentRoute: () => shell,
    path: "experiments/new",
    validateSearch: validateNewSearch,
    component: NewExperimentPage,
  });
  const router = createRouter({
    routeTree: root.addChildren([shell.addChildren([page])]),
    history: createMemoryHistory({ initialEntries: [path] }),
  });
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        {/* never: the app's own router is registered as the only type of router */}
        <RouterProvider router={router as never} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  return (node: number) =>
    act(() => router.navigate({ to: "/experiments/new", search: (before: object) => ({ ...before, node }) } as never));
}

test("another node keeps what is edited, and what is not edited follows the node", async () => {
  const specOf = (name: string) => readSpec({ ...newDraft("aa"), name }, 1).spec;
  backend.specs = { 1: specOf("of one"), 2: specOf("of two") };
  queryClient.setQueryData(meQuery.queryKey, {
    username: "ann",
    role: "operator",
    limits: [],
    csrf_token: "",
    issuer: null,
  });
  const choose = await show("/experiments/new?node=1&template=t");
  const name = () => screen.findByLabelText<HTMLInputElement>("Name");
  expect((await name()).value).toBe("of one");
  await choose(2);
  expect(await screen.findByDisplayValue("of two")).toBeTruthy();
  await userEvent.type(await name(), "!");
  await choose(1);
  expect((await name()).value).toBe("of two!");
});

test.each(["from=17", "confirm=17", "node=1&change=gone"])(
  "a form whose source (%s) cannot be read says so",
  async (source) => {
    await show(`/experiments/new?${source}`);
    expect((await screen.findByRole("alert")).textContent).toBe("It is gone.");
  },
);

test("a form whose source is still read says so", async () => {
  await show("/experiments/new?from=18");
  await screen.findByText("Loading what the experiment begins with.");
});
