import { expect, test } from "vitest";
import { timeTicks } from "./timeTicks";

const at = (time: string) => new Date(`2026-11-21T${time}`).getTime(); // local, as ticks are
const times = (from: string, to: string, most: number) =>
  timeTicks(at(from), at(to), most).map((tick) => new Date(tick).toTimeString().slice(0, 8));

test.each([
  ["08:00:07", "08:05:07", 5, ["08:01:00", "08:02:00", "08:03:00", "08:04:00", "08:05:00"]],
  ["08:00:07", "08:05:07", 3, ["08:02:00", "08:04:00"]],
  ["08:00:07", "09:00:07", 3, ["08:20:00", "08:40:00", "09:00:00"]],
  ["00:30:00", "23:30:00", 4, ["06:00:00", "12:00:00", "18:00:00"]],
] as const)("from %s to %s at most %d ticks are at round times", (from, to, most, ticks) => {
  expect(times(from, to, most)).toEqual(ticks);
});
