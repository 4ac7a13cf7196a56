import { MantineProvider } from "@mantine/core";
import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import type { NodeView } from "../nodeView";
import { entry } from "../testData";
import { NumaTaskTable } from "./NumaTaskTable";

test("the text by which processes are filtered is in the address", async () => {
  const navigate = vi.fn();
  const view = { search: { process: "post" }, navigate } as unknown as NodeView;
  const entries = [entry({ pid: 1, name: "postgres" }), entry({ pid: 2, name: "nginx" })];
  render(
    <MantineProvider>
      <NumaTaskTable view={view} entries={entries} bandwidthUnknown={null} />
    </MantineProvider>,
  );
  const filter = screen.getByRole<HTMLInputElement>("textbox", { name: "Filter processes" });
  expect(filter.value).toBe("post");
  expect(screen.getByRole("status").textContent).toMatch(/^1 of 2 processes/);
  await userEvent.clear(filter);
  await userEvent.type(filter, "nginx");
  await waitFor(() => expect(navigate).toHaveBeenCalledWith({ process: "nginx" }));
});
