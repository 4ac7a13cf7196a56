import { expect, test } from "vitest";
import { logQuery, stopLogQuery, validateChangesSearch } from "./search";

const NOW = Date.parse("2026-11-22T12:00:00Z");

test.each([
  [{}, { from_time: "2026-11-21T12:00:00.000Z", grouped: true }],
  [{ span: "1h" }, { from_time: "2026-11-22T11:00:00.000Z" }],
  [
    { from: "1000", to: "2000" },
    { from_time: "1970-01-01T00:00:01.000Z", to_time: "1970-01-01T00:00:02.000Z" },
  ],
  [{ by: "policies" }, { origin: "policies", by: undefined }],
  [{ by: "kim" }, { origin: undefined, by: "kim" }],
  [{ moves: "each" }, { grouped: false }],
])("%o asks for %o", (search, query) =>
  expect(logQuery(validateChangesSearch(search), NOW)).toEqual(expect.objectContaining(query)),
);

test.each([
  [{ node: 3, q: "incident" }, true],
  [{ by: "people" }, true],
  [{ by: "kim" }, true],
  [{ by: "policies" }, false],
  [{ state: "failed" }, false],
  [{ setting: "irq/*" }, false],
])("%o includes stops of enforcement: %s", (search, included) =>
  expect(stopLogQuery(validateChangesSearch(search), NOW) !== null).toBe(included),
);

test.each([
  [{ from: "2000", to: "1000" }],
  [{ state: "gone" }],
  [{ change: "7" }],
  [{ undo: "everything" }],
  [{ span: "24h" }],
])("an invalid parameter in %o is left out", (search) => {
  const found = validateChangesSearch(search);
  expect(Object.values(found).every((value) => value === undefined)).toBe(true);
});
