import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { queryClient } from "../api/queries";
import { TracePicker } from "./TracePicker";

globalThis.fetch = async () =>
  Response.json(
    { detail: "Line 3 has no 18 fields." },
    { status: 422, headers: { "content-type": "application/problem+json" } },
  );

test("after a failed upload the same file can be chosen again", async () => {
  const { container } = render(
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <TracePicker value="" error={undefined} onChange={() => undefined} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const input = container.querySelector<HTMLInputElement>("input[type=file]");
  if (input === null) throw new Error("There is no input for a file.");
  // a browser fires no event for a file that the input has already, unless it was emptied
  const empty = vi.spyOn(input, "value", "set");
  fireEvent.change(input, { target: { files: [new File(["x"], "jobs.swf")] } });
  await screen.findByText("Line 3 has no 18 fields.");
  expect(empty).toHaveBeenCalledWith("");
});
