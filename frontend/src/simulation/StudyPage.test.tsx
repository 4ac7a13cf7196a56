import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { meQuery, queryClient } from "../api/queries";
import { studyQuery } from "./queries";
import { StudyPage } from "./StudyPage";
import type { Study } from "./types";

globalThis.fetch = () => new Promise(() => undefined);
const shown = vi.hoisted(() => ({ studyId: 1 }));
vi.mock("@tanstack/react-router", () => ({ Link: "a", getRouteApi: () => ({ useParams: () => shown }) }));

const study = (id: number) =>
  ({
    ...{ id, state: "running", sentence: "", runs_done: 0, runs_planned: 9, remaining_s: null, ended_at: null },
    ...{ cells: [], verdicts: [], sensitivities: [], jobs: [], parameters: [] },
    spec: { schemes: [], patterns: [], job_types: [], imbalances: [], seeds: 1, parameters: { jobs: 1 }, trace: "" },
  }) as unknown as Study;

test("a question about one study is not asked about the next one that is shown", async () => {
  queryClient.setQueryData(meQuery.queryKey, {
    ...{ username: "ann", role: "operator", limits: [], csrf_token: "", issuer: null },
  });
  for (const id of [1, 2]) queryClient.setQueryData(studyQuery(id).queryKey, study(id));
  const page = () => (
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <StudyPage />
      </QueryClientProvider>
    </MantineProvider>
  );
  const { rerender } = render(page());
  await userEvent.click(screen.getByRole("button", { name: "Cancel study" }));
  expect(screen.queryByRole("dialog")).not.toBeNull();
  shown.studyId = 2;
  act(() => rerender(page()));
  expect(document.title).toMatch(/^Study 2/);
  expect(screen.queryByRole("dialog")).toBeNull();
});
