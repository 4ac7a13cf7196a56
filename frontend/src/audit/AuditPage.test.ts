import { expect, test } from "vitest";
import { startedChange } from "./AuditPage";

const id = "94c565eb-400c-4375-aee5-4f05a4fb2f1a";

test.each([
  ["change.apply", `change ${id} on db-1`, id],
  ["change.rolled_back", `change ${id} on db-1`, null],
  ["change.apply", "node 3", null],
])("%s of %s links the report of %s", (action, target, change) => {
  expect(startedChange({ action, target })).toBe(change);
});
