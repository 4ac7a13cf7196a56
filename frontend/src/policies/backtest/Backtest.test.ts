import { expect, test } from "vitest";
import { storedText, whyEmpty } from "./Backtest";

const at = (time: string) => new Date(time).getTime();
const stored = { from: at("2026-11-21T22:10:00"), to: at("2026-11-22T00:05:30") };

test("the time range of a node's samples is a sentence", () => {
  const words = (to: string) => storedText("db-1", { ...stored, to: at(to) }).replaceAll("\u00a0", " ");
  expect(words("2026-11-21T23:15:00")).toBe(
    "Samples of db-1 are stored from 2026-11-21 22:10:00 to 23:15:00, 1 h 5 min.",
  );
  expect(words("2026-11-22T00:10:00")).toBe(
    "Samples of db-1 are stored from 2026-11-21 22:10:00 to 2026-11-22 00:10:00, 2 h.",
  );
});

test.each([
  ["2026-11-21T22:00:00", "2026-11-21T22:30:00", null],
  ["2026-11-21T21:00:00", "2026-11-21T22:10:00", "The samples begin at 2026-11-21 22:10:00."],
  ["2026-11-22T00:05:30", "2026-11-22T01:00:00", "The samples end at 2026-11-22 00:05:30."],
  ["", "", "Enter a time like 2026-11-22 00:05:30."],
])("a backtest from %s to %s without samples is refused: %s", (from, to, why) =>
  expect(whyEmpty(at(from), at(to), stored)).toBe(why),
);
