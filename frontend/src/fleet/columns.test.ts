import { expect, test } from "vitest";
import { COLUMNS, isColumns, shownColumns, toggleColumn } from "./columns";

const USUAL = COLUMNS.filter((name) => name !== "wrong-node");

test("without columns in the address the usual ones are shown", () => expect(shownColumns(undefined)).toEqual(USUAL));

test("columns are shown in the table's order", () => {
  expect(isColumns("rx,health")).toBe(true);
  expect(shownColumns("rx,health")).toEqual(["health", "rx"]);
});

test.each(["", "rx,", "ry"])("%j is no list of columns", (text) => expect(isColumns(text)).toBe(false));

test.each([
  ["rx", "health", "health,rx"],
  ["health,rx", "health", "rx"],
  ["rx", "rx", "rx"],
] as const)("%s without or with %s is %s", (columns, column, after) =>
  expect(toggleColumn(columns, column)).toBe(after),
);

test("the usual columns need no parameter, all of them do", () => {
  const without = toggleColumn(undefined, "labels");
  expect(without?.split(",")).toEqual(USUAL.slice(0, -1));
  expect(toggleColumn(without, "labels")).toBe(undefined);
  expect(toggleColumn(undefined, "wrong-node")?.split(",")).toEqual(COLUMNS);
});
