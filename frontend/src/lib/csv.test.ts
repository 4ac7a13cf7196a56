import { expect, test } from "vitest";
import { csv, seriesCsv } from "./csv";

test.each([
  ["a", "a"],
  ["a,b", '"a,b"'],
  ['a "b"', '"a ""b"""'],
  ["=SUM(A1)", "'=SUM(A1)"],
  [-1.5, "-1.5"],
  [null, ""],
])("the value %o is written as %s", (value, text) => expect(csv([[value]])).toBe(`${text}\r\n`));

test("a chart's lines have times with their zone and units in the header; steps without values are left out", () => {
  const points = [
    { t: 0, rx: 1, tx: null },
    { t: 1000, rx: null, tx: null },
    { t: 2000, rx: null, tx: 2.5 },
  ];
  const lines = [
    { key: "rx", name: "received" },
    { key: "tx", name: "sent" },
  ];
  expect(seriesCsv(points, lines, "B/s").split("\r\n")).toEqual([
    "time (UTC),received (B/s),sent (B/s)",
    "1970-01-01T00:00:00.000Z,1,",
    "1970-01-01T00:00:02.000Z,,2.5",
    "",
  ]);
});
