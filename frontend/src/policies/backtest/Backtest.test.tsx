import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test, vi } from "vitest";
import { queryClient } from "../../api/queries";
import { samplesSpanQuery } from "../queries";
import type { PolicySearch } from "../search";
import type { Policy } from "../types";
import { Backtest } from "./Backtest";

/** A fake backend that fails each backtest, and counts them. */
const backend = vi.hoisted(() => {
  const state = { backtests: 0 };
  globalThis.fetch = async (input) => {
    if ((input as Request).method !== "POST") return new Promise(() => undefined);
    state.backtests += 1;
    const body = JSON.stringify({ type: "about:blank", title: "Busy", status: 409, detail: "Another one runs." });
    return new Response(body, { status: 409, headers: { "content-type": "application/problem+json" } });
  };
  return state;
});

function Page() {
  const [search, setSearch] = useState<PolicySearch>({ node: 5 });
  return (
    <Backtest
      policy={{ id: 7, version: 1 } as Policy}
      versions={[]}
      edited={null}
      search={search}
      navigate={(change) => setSearch({ ...search, ...change })}
    />
  );
}

test("a backtest that failed runs again with the same values", async () => {
  const span = { from_time: "2026-11-21T08:00:00Z", to_time: "2026-11-21T10:00:00Z" };
  queryClient.setQueryData(samplesSpanQuery(5).queryKey, span);
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <Page />
      </QueryClientProvider>
    </MantineProvider>,
  );
  for (const run of [1, 2]) {
    await userEvent.click(screen.getByRole("button", { name: "Run backtest" }));
    await waitFor(() => expect(backend.backtests).toBe(run));
    await screen.findByText(/Another one runs\./);
  }
});
