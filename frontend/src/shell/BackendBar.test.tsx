import { QueryClientProvider } from "@tanstack/react-query";
import { act, render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { healthQuery, queryClient } from "../api/queries";
import { BackendBar } from "./BackendBar";

test("after an upgrade of the backend the page asks to be reloaded", async () => {
  const health = (version: string) =>
    act(() => {
      queryClient.setQueryData(healthQuery.queryKey, { status: "ok", database: "ok", version, reasons: [] });
    });
  queryClient.setQueryDefaults(healthQuery.queryKey, { enabled: false });
  health("0.1.0");
  render(
    <QueryClientProvider client={queryClient}>
      <BackendBar />
    </QueryClientProvider>,
  );
  expect(screen.queryByRole("status")).toBeNull();
  health("0.2.0");
  expect((await screen.findByRole("status")).textContent).toContain("The backend is version 0.2.0 now");
  expect(screen.getByRole("button").textContent).toBe("Reload");
});
