import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { LiveWindow } from "../time/liveWindow";
import { Rates } from "./NetdevPanel";

const NOTE = "Paused: values of the last received samples.";

test("rates of a network device say in a past range that they are not of that range", () => {
  const window = new LiveWindow(2, 300, 1, 0);
  const { rerender } = render(<Rates view={{ window, past: null }} name="eth0" />);
  expect(screen.queryByText(NOTE)).toBeNull();
  rerender(<Rates view={{ window, past: { from: 0, to: 60_000 } }} name="eth0" />);
  expect(screen.getByText(NOTE)).toBeTruthy();
});
