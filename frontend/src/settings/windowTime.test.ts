import { expect, test } from "vitest";
import { windowTime } from "./windowTime";

test.each([
  [[0, 1, 2, 3], "Mon–Thu 22:00–05:00"],
  [[0, 1, 2, 3, 4, 5, 6], "daily 22:00–05:00"],
  [[5, 6], "Sat, Sun 22:00–05:00"],
  [[0, 2, 3, 4, 6], "Mon, Wed–Fri, Sun 22:00–05:00"],
])("days %j in a row are written as a range", (weekdays, text) => {
  expect(windowTime({ weekdays, start: "22:00", end: "05:00" })).toBe(text);
});
