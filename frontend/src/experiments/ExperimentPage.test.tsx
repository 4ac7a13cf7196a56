import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { ExperimentPage } from "./ExperimentPage";
import { experimentQuery } from "./queries";
import { sweep } from "./testData";
import type { Experiment } from "./types";

globalThis.fetch = (input) =>
  (input as Request).url.endsWith("/experiments/1/share")
    ? Promise.resolve(Response.json({ url: "/share/one", expires_at: "2026-11-21T08:00:00Z" }))
    : new Promise(() => undefined);
const shown = vi.hoisted(() => ({ experimentId: 1 }));
vi.mock("@tanstack/react-router", () => ({
  Link: "a",
  getRouteApi: () => ({ useParams: () => shown, useSearch: () => ({}), useNavigate: () => () => undefined }),
}));
vi.mock("./results/CpuHeatmap", () => ({ CpuHeatmap: () => null }));
vi.mock("./results/ExperimentFacts", () => ({ Discarded: () => null, SettingsNow: () => null, SpecFacts: () => null }));
vi.mock("./results/RunsChart", () => ({ RunsChart: () => null }));
vi.mock("./results/SweepChart", () => ({ SweepChart: () => null }));

const experiment = (id: number): Experiment => {
  const known = sweep();
  return {
    ...known,
    ...{ id, name: `experiment ${id}`, node_id: 1, node_name: "db-1", created_by: "ann", state: "done", activity: "" },
    ...{ findings: [], tune: null, runs_done: 4, runs_discarded: 0, remaining_s: null, ended_at: null },
    spec: { ...known.spec, template: "", primary: "throughput_bit_per_s" },
  } as Experiment;
};

test("the public link to one experiment is not shown with the next one", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "operator", limits: [], csrf_token: "", issuer: null },
  });
  for (const id of [1, 2]) queryClient.setQueryData(experimentQuery(id).queryKey, experiment(id));
  const page = () => (
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <ExperimentPage />
      </QueryClientProvider>
    </MantineProvider>
  );
  const { rerender } = render(page());
  await userEvent.click(screen.getByRole("button", { name: "Create link" }));
  await screen.findByText(/^Anyone with this link/);
  shown.experimentId = 2;
  act(() => rerender(page()));
  expect(document.title).toMatch(/^experiment 2/);
  expect(screen.queryByText(/^Anyone with this link/)).toBeNull();
});
