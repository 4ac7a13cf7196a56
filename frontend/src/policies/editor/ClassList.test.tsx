import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test } from "vitest";
import { ClassList } from "./ClassList";
import { classDraft, classesSchema } from "./classDraft";

function Listed({ wrong = {} }: { wrong?: Record<string, string> }) {
  const names = ["gold", "silver", "bronze"];
  const [list, setList] = useState(() => names.map((name, place) => classDraft({ name, target_percent: 90 - place })));
  return (
    <MantineProvider>
      <ClassList schema={classesSchema()} list={list} wrong={wrong} path="spec.classes" onChange={setList} />
    </MantineProvider>
  );
}
const order = () =>
  within(screen.getByRole("list"))
    .getAllByRole("listitem")
    .map((row) => row.getAttribute("aria-label"));
const button = (name: string) => screen.getByRole("button", { name });

test("a class is moved by its buttons and by arrows at its handle, which keep the keyboard", async () => {
  render(<Listed />);
  await userEvent.click(button("bronze up"));
  expect(order()).toEqual(["gold", "bronze", "silver"]);
  expect(document.activeElement).toBe(button("bronze up"));
  await userEvent.keyboard("{Enter}");
  expect(order()).toEqual(["bronze", "gold", "silver"]);
  expect(screen.getByRole("status").textContent).toBe("bronze is now 1 of 3.");
  await userEvent.keyboard("{Enter}");
  expect(order()).toEqual(["bronze", "gold", "silver"]);
  button("Move bronze").focus();
  await userEvent.keyboard("{ArrowDown}{ArrowDown}");
  expect(order()).toEqual(["gold", "silver", "bronze"]);
  expect(document.activeElement).toBe(button("Move bronze"));
});

test("a class is dragged by its handle over the middle of others", () => {
  render(<Listed />);
  const rows = () => within(screen.getByRole("list")).getAllByRole("listitem");
  const handle = button("Move gold");
  handle.setPointerCapture = () => undefined;
  fireEvent.pointerDown(handle, { pointerId: 1 });
  for (const [index, row] of rows().entries())
    row.getBoundingClientRect = () => ({ top: index * 100, height: 100 }) as DOMRect;
  fireEvent.pointerMove(handle, { pointerId: 1, clientY: 170 });
  expect(order()).toEqual(["silver", "gold", "bronze"]);
  fireEvent.pointerUp(handle, { pointerId: 1 });
  fireEvent.pointerMove(handle, { pointerId: 1, clientY: 900 });
  expect(order()).toEqual(["silver", "gold", "bronze"]);
});

test("classes are added and taken away, the last one stays", async () => {
  render(<Listed />);
  await userEvent.click(button("Add a class"));
  expect(order()).toEqual(["gold", "silver", "bronze", "class-4"]);
  for (const name of ["gold", "bronze", "class-4"]) await userEvent.click(button(`Remove ${name}`));
  expect(order()).toEqual(["silver"]);
  expect(button("Remove silver").hasAttribute("disabled")).toBe(true);
});

test("a pattern that does not fit is not hidden", () => {
  render(<Listed wrong={{ "spec.classes[1].match.clients": "office is not a network." }} />);
  expect(screen.getByText("office is not a network.").closest("details")?.open).toBe(true);
});
