import { expect, test } from "vitest";
import { nextSort } from "./SortHeading";

test("a heading sorts figures descending, then ascending, then not; names the other way round", () => {
  expect([nextSort(undefined, "cpus"), nextSort("-cpus", "cpus"), nextSort("cpus", "cpus")]).toEqual([
    "-cpus",
    "cpus",
    undefined,
  ]);
  expect([nextSort("-cpus", "name"), nextSort("name", "name"), nextSort("-name", "name")]).toEqual([
    "name",
    "-name",
    undefined,
  ]);
});
