import { createMemoryHistory, createRootRoute, createRouter, RouterProvider } from "@tanstack/react-router";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { useTimeKeys } from "./useTimeKeys";

test("Space pauses, but not where it has a use of its own", async () => {
  const pause = vi.fn();
  function Page() {
    useTimeKeys(false, pause, vi.fn());
    return (
      <>
        <p>text</p>
        <button type="button">the fleet</button>
        <details>
          <summary>
            <b>more</b>
          </summary>
        </details>
        <div role="dialog">dialog</div>
      </>
    );
  }
  const router = createRouter({
    routeTree: createRootRoute({ component: Page }),
    history: createMemoryHistory(),
  });
  render(<RouterProvider router={router as never} />); // never: the app's own router is registered as the only type
  for (const text of ["the fleet", "more", "dialog"]) fireEvent.keyDown(await screen.findByText(text), { key: " " });
  expect(pause).not.toHaveBeenCalled();
  fireEvent.keyDown(screen.getByText("text"), { key: " " });
  expect(pause).toHaveBeenCalledTimes(1);
});
