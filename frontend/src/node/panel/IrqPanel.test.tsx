import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { queryClient } from "../../api/queries";
import type { NodeView } from "../nodeView";
import { inventory, irq, machine } from "../testData";
import { LiveWindow } from "../time/liveWindow";
import { IrqPanel } from "./IrqPanel";

Element.prototype.scrollIntoView = vi.fn(); // jsdom has no layout
globalThis.fetch = () => new Promise(() => undefined);

const panel = (requested: string) => (
  <MantineProvider>
    <QueryClientProvider client={queryClient}>
      <IrqPanel
        number={41}
        view={
          {
            ...{ node: { id: 1, labels: {}, mode: "managed", health: "live" }, changes: [], past: null },
            topology: machine({ packages: 1, nodesEach: 1, cachesEach: 1, coresEach: 4, threads: 1 }),
            inventory: inventory([irq(41, { requested })]),
            window: new LiveWindow(4, 300, 1, 0),
          } as unknown as NodeView
        }
      />
    </QueryClientProvider>
  </MantineProvider>
);

test("a typed affinity stays when the interrupt is moved, one that was not typed follows it", async () => {
  const { rerender } = render(panel("0"));
  const field = () => screen.getByLabelText<HTMLInputElement>("Move to CPUs");
  rerender(panel("1"));
  expect(field().value).toBe("1");
  await userEvent.type(field(), "-2");
  rerender(panel("3"));
  expect(field().value).toBe("1-2");
});
