import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { Presets } from "./Presets";
import type { Schema } from "./schema";

const schema: Schema = {
  properties: { max_added_us: { type: "number" }, share: { type: "number", scale: 100 } },
  presets: [
    { label: "bulk transfer", summary: "Fewest interrupts.", values: { max_added_us: 3780, share: 0.25 } },
    { label: "latency first", summary: "Shortest delays.", values: { max_added_us: 100 } },
  ],
};
const shown = (values: Record<string, string>, onChoose = vi.fn()) => {
  render(
    <MantineProvider>
      <Presets schema={schema} path="spec" values={values} onChoose={onChoose} />
    </MantineProvider>,
  );
  return onChoose;
};
const pressed = () => screen.queryAllByRole("button", { pressed: true }).map(({ textContent }) => textContent);

test("a preset fills its fields with the texts that the form shows", () => {
  const onChoose = shown({});
  fireEvent.click(screen.getByRole("button", { name: "bulk transfer" }));
  expect(onChoose).toHaveBeenCalledWith({ "spec.max_added_us": "3780", "spec.share": "25" });
});

test("the preset whose values the fields have is pressed and described", () => {
  shown({ "spec.max_added_us": "3780", "spec.share": "25" });
  expect(pressed()).toEqual(["bulk transfer"]);
  expect(screen.getByText("Fewest interrupts.")).toBeTruthy();
});

test("with other values none is", () => {
  shown({ "spec.max_added_us": "3781", "spec.share": "25" });
  expect(pressed()).toEqual([]);
});
