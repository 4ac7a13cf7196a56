import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { queryClient } from "../../api/queries";
import type { NodeView } from "../nodeView";
import { inventory, irq, machine } from "../testData";
import { LiveWindow } from "../time/liveWindow";
import { InterruptMatrix } from "./InterruptMatrix";
import { HEAD_HEIGHT } from "./matrixPainter";

test("a click in the matrix opens an interrupt, a press of another button does not", () => {
  const navigate = vi.fn();
  const view = {
    ...{ node: { id: 1, name: "db-1" }, search: {}, past: null, navigate, window: new LiveWindow(2, 300, 1, 0) },
    ...{ topology: machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 2, threads: 1 }) },
    inventory: inventory([irq(41)]),
  } as unknown as NodeView;
  render(
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <InterruptMatrix view={view} />
      </QueryClientProvider>
    </MantineProvider>,
  );
  const canvas = screen.getByRole("application").querySelector("canvas");
  if (canvas === null) throw new Error("no canvas");
  fireEvent.pointerUp(canvas, { clientY: HEAD_HEIGHT + 1, button: 2 });
  expect(navigate).not.toHaveBeenCalled();
  fireEvent.pointerUp(canvas, { clientY: HEAD_HEIGHT + 1, button: 0 });
  expect(navigate.mock.calls).toEqual([[{ sel: "irq:41" }]]);
});
