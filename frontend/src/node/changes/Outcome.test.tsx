import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { changeQuery, openChangesQuery, queryClient } from "../../api/queries";
import { change } from "../testData";
import { Outcome } from "./Outcome";

test("an applied change asks for a confirmation until it is confirmed", async () => {
  const open = change({ id: "a", state: "unconfirmed", status: "unconfirmed" });
  globalThis.fetch = async () => Response.json({ ...open, state: "confirmed", status: "confirmed" });
  queryClient.setQueryData(openChangesQuery.queryKey, { changes: [open], older: null });
  render(
    <QueryClientProvider client={queryClient}>
      <Outcome change={open} />
    </QueryClientProvider>,
  );
  screen.getByText(/^Applied\. Confirm it in the banner above/);
  act(() => {
    queryClient.setQueryData(openChangesQuery.queryKey, { changes: [], older: null });
  });
  await screen.findByText("Applied, then confirmed.");
  expect(queryClient.getQueryData(changeQuery("a").queryKey)?.state).toBe("confirmed");
});
