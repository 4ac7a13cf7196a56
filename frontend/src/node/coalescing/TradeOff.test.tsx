import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { expect, test, vi } from "vitest";
import { queryClient } from "../../api/queries";
import type { NodeView } from "../nodeView";
import { coalescingQuery } from "../queries";
import { inventory, irq } from "../testData";
import type { Coalescing } from "./nicParams";
import { PLOT_LEFT, PLOT_TOP } from "./surfacePainter";
import { TradeOff } from "./TradeOff";

vi.spyOn(HTMLElement.prototype, "clientWidth", "get").mockReturnValue(PLOT_LEFT + 100);
vi.spyOn(HTMLCanvasElement.prototype, "getContext").mockReturnValue(null);

function page(over: object) {
  const view = { node: { id: 1, name: "db-1" }, search: {}, inventory: inventory([irq(41)]), ...over };
  return (
    <MantineProvider>
      <QueryClientProvider client={queryClient}>
        <TradeOff view={view as unknown as NodeView} />
      </QueryClientProvider>
    </MantineProvider>
  );
}

test("a click in the trade-off selects values, a press of another button does not", () => {
  const surface = { rx_usecs: [54], rx_frames: [], predicted: [[null]], bound_us: [[null]], product_us: [[54]] };
  queryClient.setQueryData(coalescingQuery(1, "eth0", {}).queryKey, {
    ...{ netdev: "eth0", surface, points: [], bounds: [], traffic: null, timer: null, timer_why: "" },
    current: { rx_usecs: 3, rx_frames: null, adaptive: false, interrupts_per_s: null, predicted: null },
  } as unknown as Coalescing);
  const navigate = vi.fn();
  render(page({ navigate }));
  const at = { clientX: PLOT_LEFT + 50, clientY: PLOT_TOP + 10 };
  fireEvent.pointerUp(screen.getByRole("application"), { ...at, button: 2 });
  expect(navigate).not.toHaveBeenCalled();
  fireEvent.pointerUp(screen.getByRole("application"), { ...at, button: 0 });
  expect(navigate.mock.calls).toEqual([[{ sel: "nic:eth0", point: "54" }]]);
});

test("an assumed figure is in the URL when typing pauses, as it is typed, and leaves the field with it", async () => {
  const navigate = vi.fn();
  const { rerender } = render(page({ navigate }));
  const field = screen.getByRole<HTMLInputElement>("textbox", { name: "Assumed packets/s" });
  await userEvent.type(field, "1e6");
  await waitFor(() => expect(navigate.mock.calls).toEqual([[{ pps: 1_000_000 }]]));
  rerender(page({ navigate, search: { pps: 1_000_000 } }));
  expect(field.value).toBe("1e6");
  rerender(page({ navigate }));
  expect(field.value).toBe("");
});
