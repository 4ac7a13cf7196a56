import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen, waitFor } from "@testing-library/react";
import { expect, test } from "vitest";
import { changeQuery, openChangesQuery, queryClient } from "../../api/queries";
import { change } from "../testData";
import { Outcome } from "./Outcome";

test("an outcome is stated when it is known: applied, to be confirmed, confirmed", async () => {
  const open = change({ id: "a", state: "unconfirmed", status: "unconfirmed" });
  const applying = change({ id: "a", state: "applying", status: "applying" });
  const list = (...changes: (typeof open)[]) =>
    act(() => void queryClient.setQueryData(openChangesQuery.queryKey, { changes, older: null }));
  let answer: (response: Response) => void = () => undefined;
  globalThis.fetch = () => new Promise((resolve) => (answer = resolve));
  list(applying);
  render(
    <QueryClientProvider client={queryClient}>
      <Outcome change={applying} />
    </QueryClientProvider>,
  );
  const text = () => screen.getByRole("status").textContent;
  expect(text()).toBe("Being applied.");
  list(open);
  await waitFor(() => expect(text()).toBe("Applied. Confirm it in the banner above, or it rolls back."));
  list();
  await waitFor(() => expect(text()).toBe(""));
  answer(Response.json({ ...open, state: "confirmed", status: "confirmed" }));
  await screen.findByText("Applied, then confirmed.");
  expect(queryClient.getQueryData(changeQuery("a").queryKey)?.state).toBe("confirmed");
});
