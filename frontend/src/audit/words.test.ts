import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { change } from "../node/testData";
import { rowsOf } from "./rows";
import { actionsText, entryWords, rowWords } from "./words";

type Entry = Pick<Schemas["AuditEntry"], "action" | "target" | "result" | "detail">;

const target = "change 94c565eb-400c-4375-aee5-4f05a4fb2f1a on db-1";

test.each([
  [{ action: "change.roll_back", target, result: "requested", detail: {} }, "roll back requested: "],
  [
    { action: "change.confirm", target, result: "failed", detail: { sentence: "No answer." } },
    "confirm failed: No answer.",
  ],
  [{ action: "policy.create_version", target: "policy web", result: "ok", detail: {} }, "changed: policy web"],
] satisfies [Entry, string][])("%o reads as %s", (entry, text) => {
  const { said, of } = entryWords(entry);
  expect(`${said}: ${of}`).toBe(text);
});

const confirmed: Entry = { action: "change.confirmed", target, result: "ok", detail: {} };
const refused: Entry = { action: "change.confirm", target, result: "refused", detail: {} };
const moved = { key: "irq/38/affinity", becomes: "0" };

test.each([
  [confirmed, change(moved), "confirmed: IRQ 38 → CPU 0"],
  [confirmed, change({ ...moved, undoes: "c0" }), "confirmed: undo: IRQ 38 → CPU 0"],
  [confirmed, change({ ...moved, status: "undone" }), "undone: IRQ 38 → CPU 0"],
  [refused, change(moved), "confirm refused: IRQ 38 → CPU 0"],
])("%o of a change reads as what became of it", (entry, of, text) => {
  const words = rowWords({ key: "", entries: [entry], changes: [of] });
  expect(`${words.said}: ${words.of}`).toEqual(text);
});

test("the moves of a row read as what became of them", () => {
  const changes = [change({}), change({ id: "c2", status: "failed" }), change({ id: "c3" })];
  expect(rowWords({ key: "", entries: [confirmed], changes })).toMatchObject({
    said: "confirmed, failed",
    of: "moves",
  });
});

test("of many settings the first two are named", () => {
  const many = ["0-3", "4", "5"].map((becomes, n) => ({ key: `irq/${30 + n}/affinity`, becomes }));
  expect(actionsText(many)).toBe("IRQ 30 → CPUs 0-3, IRQ 31 → CPU 4 and 1 more");
});

test("the entries of a change, and those of a policy's moves of an hour, are one row in the place of the newest", () => {
  const by = { created_by: "policy web v4", policy_id: 4, created_at: "2026-11-21T08:01:00Z" };
  const changes = [change({ id: "a" }), change({ id: "b", ...by }), change({ id: "c", ...by })];
  const later = change({ id: "d", ...by, created_at: "2026-11-21T09:00:00Z" });
  const of = ["d", "c", null, null, "b", "a", "gone", "gone", "c", "a"];
  const entries = of.map((id, at) => ({ id: 10 - at, change: id }));
  expect(rowsOf(entries, [later, ...changes]).map((row) => row.entries.map(({ id }) => id))).toEqual([
    [10],
    [9, 6, 2],
    [8],
    [7],
    [5, 1],
    [4, 3],
  ]);
});
