import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import { expect, test } from "vitest";
import { RangePicker } from "./RangePicker";

test.each([
  ["its time within one day", "2026-11-14T09:12:33", "2026-11-14 08:12:33 to 09:12:33"],
  ["its date, too, on another day", "2026-11-21T08:12:33", "2026-11-14 08:12:33 to 2026-11-21 08:12:33"],
])("a range is labelled with its end: %s", (_, to, label) => {
  const past = { from: Date.parse("2026-11-14T08:12:33"), to: Date.parse(to) };
  render(
    <MantineProvider>
      <RangePicker past={past} proposed={() => past} onChange={() => undefined} />
    </MantineProvider>,
  );
  expect(screen.getByRole("button").textContent).toBe(label);
});
