import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { queryClient } from "../../api/queries";
import type { NodeView } from "../nodeView";
import { changesQuery } from "../queries";
import { change } from "../testData";
import { Lane } from "./Lane";
import { LiveWindow } from "./liveWindow";

vi.hoisted(() => {
  globalThis.fetch = () => new Promise(() => undefined);
});

test.each([
  ["hatched where there are more", "c0", 0, 1],
  ["hatched at the node's time", "c0", 60_000, 1],
  ["not hatched without", null, 0, 0],
])("the time before the oldest of the newest changes is %s", (_, older, skewMs, hatched) => {
  const from = Date.parse("2026-11-21T08:00:00Z");
  const stored = { from, to: from + 3_600_000 };
  const past = { from: stored.from + skewMs, to: stored.to + skewMs };
  const changes = [change({ created_at: "2026-11-21T08:30:00Z" }), change({ created_at: "2026-11-21T08:15:00Z" })];
  queryClient.setQueryData(changesQuery(1, stored).queryKey, { changes, older });
  const view = {
    ...{ node: { id: 1, clock_skew_ms: skewMs }, past, stored, marks: [], policyMarks: [] },
    window: new LiveWindow(2, 300, 1, 0),
  } as unknown as NodeView;
  render(
    <QueryClientProvider client={queryClient}>
      <Lane view={view} />
    </QueryClientProvider>,
  );
  const found = screen.queryAllByTitle(/^Only the newest 2 changes have marks/);
  expect(found.map(({ style }) => style.width)).toEqual(Array(hatched).fill("25%"));
});
