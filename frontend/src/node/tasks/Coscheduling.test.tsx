import { render, screen, within } from "@testing-library/react";
import { expect, test } from "vitest";
import { CoschedulingCells, CoschedulingHeaders, CoschedulingReasons } from "./Coscheduling";
import type { NetTask } from "./rxPath";

type Coscheduled = NetTask["coscheduled"];

const FIRST: Coscheduled = { pending_bytes: 2048, ert_s: -0.0123, boosts: 34, periods: 100, why: "First: node-2." };
const IDLE: Coscheduled = { pending_bytes: 0, ert_s: null, boosts: 0, periods: 100, why: "No message was pending." };

const cellsOf = (coscheduled: Coscheduled): (string | null)[] => {
  const { container } = render(
    <table>
      <thead>
        <tr>
          <CoschedulingHeaders />
        </tr>
      </thead>
      <tbody>
        <tr>
          <CoschedulingCells of={coscheduled} />
        </tr>
      </tbody>
    </table>,
  );
  return [...container.querySelectorAll("td")].map(({ textContent }) => textContent);
};

test("a process's pending bytes, expected run time and boosts are shown", () => {
  expect(cellsOf(FIRST)).toEqual(["2.00\u00a0KiB", "−12.3\u00a0ms", "34 of 100 periods"]);
});

test("without a pending message there is no expected run time, and without the policy nothing", () => {
  expect(cellsOf(IDLE)[1]).toBe("none");
  expect(cellsOf(null)).toEqual(["", "", ""]);
});

test("the expected run time of a process with pending messages is unknown where it was not predicted", () => {
  expect(cellsOf({ ...FIRST, ert_s: null })[1]).toBe("unknown: First: node-2.");
});

test("the reasons are those of boosted processes, each once", () => {
  const task = (pid: number, coscheduled: Coscheduled) => ({ pid, name: "bsp", coscheduled }) as NetTask;
  render(<CoschedulingReasons tasks={[task(7, FIRST), task(7, FIRST), task(8, IDLE), task(9, null)]} />);
  const items = within(screen.getByRole("list", { name: "Reasons of boosts" })).getAllByRole("listitem");
  expect(items.map(({ textContent }) => textContent)).toEqual(["bsp (7): First: node-2."]);
});
