import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { version } from "../../package.json";
import { healthQuery, queryClient } from "../api/queries";
import { BackendBar } from "./BackendBar";

const DEGRADED = [{ code: "disk", detail: "The disk is full." }] as never;

test.each([
  ["nothing, if all is well", version, [], null],
  ["why the backend is degraded", version, DEGRADED, "The disk is full."],
  ["another version", "9.9.9", [], "The backend is version 9.9.9, this page version"],
  ["both", "9.9.9", DEGRADED, "The disk is full. The backend is version 9.9.9"],
])("it says %s", (_, backendVersion, reasons, says) => {
  queryClient.setQueryData(healthQuery.queryKey, { status: "ok", database: "ok", version: backendVersion, reasons });
  render(
    <QueryClientProvider client={queryClient}>
      <BackendBar />
    </QueryClientProvider>,
  );
  expect(screen.queryByRole("status")?.textContent.includes(says ?? "") ?? null).toBe(says === null ? null : true);
  expect(screen.queryByRole("button") !== null).toBe(backendVersion !== version);
});
