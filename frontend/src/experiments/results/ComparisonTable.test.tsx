import { fireEvent, render, screen, within } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import { comparison, sweep } from "../testData";
import { ComparisonTable } from "./ComparisonTable";

const rows = [
  { key: "a", name: "small", comparison: comparison() },
  {
    key: "b",
    name: "large",
    comparison: comparison({ effect: { value: -0.4, low: -0.5, high: -0.3 }, verdict: "lower" }),
  },
  { key: "c", name: "unknown", comparison: comparison({ effect: null, p: null, verdict: "too-few" }) },
];
const names = () =>
  screen
    .getAllByRole("row")
    .slice(1)
    .map((row) => within(row).getAllByRole("cell")[0]?.textContent);

test("rows sort by the size of the effect, unknown ones last, and back to the original order", () => {
  render(<ComparisonTable experiment={sweep()} label="Levels" first="level" rows={rows} />);
  expect(names()).toEqual(["small", "large", "unknown"]);
  fireEvent.click(screen.getByRole("button", { name: /^effect/ }));
  expect(names()).toEqual(["large", "small", "unknown"]);
  fireEvent.click(screen.getByRole("button", { name: /^effect/ }));
  expect(names()).toEqual(["small", "large", "unknown"]);
});

test("verdicts are shown as text beside their values", () => {
  render(<ComparisonTable experiment={sweep()} label="Levels" first="level" rows={rows} />);
  expect(screen.getByText("+5.0 % (+3.0 to +7.0 %)")).toBeTruthy();
  expect(screen.getByText(/lower, worse/)).toBeTruthy();
  expect(screen.getByText(/too few runs/)).toBeTruthy();
});

test.each([
  ["running", 1],
  ["cancelled", 1],
  ["done", 0],
] as const)("p of an experiment that is %s holds for the planned number of blocks only", (state, times) => {
  render(<ComparisonTable experiment={{ ...sweep(), state }} label="Levels" first="level" rows={rows} />);
  expect(screen.queryAllByText(/p hold for the planned number of blocks only/)).toHaveLength(times);
});

test("a row can be selected", () => {
  const choose = vi.fn();
  render(
    <ComparisonTable experiment={sweep()} label="Levels" first="level" rows={rows} chosen="a" onChoose={choose} />,
  );
  expect(screen.getByRole("button", { name: "small" }).getAttribute("aria-pressed")).toBe("true");
  fireEvent.click(screen.getByRole("button", { name: "large" }));
  expect(choose).toHaveBeenCalledWith("b");
});
