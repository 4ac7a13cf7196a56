import { expect, test } from "vitest";
import { validateFleetSearch } from "./search";

test.each([
  [{}, {}],
  [
    { q: "db", group: "label:rack", color: "rtt", view: "table", sort: "-softirq" },
    { q: "db", group: "label:rack", color: "rtt", view: "table", sort: "-softirq" },
  ],
  [{ q: "", color: "red", view: "list", sort: "--rx" }, {}],
  [{ sort: "rx" }, { sort: "rx" }],
  [
    { from: "1000", to: "61000", at: "2000", compare: "1d" },
    { from: 1000, to: 61000, at: 2000, compare: "1d" },
  ],
  [{ columns: "rx,labels" }, { columns: "rx,labels" }],
  [{ columns: "rx,name" }, {}],
  [{ from: "1000", to: "60999", compare: "2d" }, {}],
])("%o is parsed as %o", (search, expected) => expect(validateFleetSearch(search)).toEqual(expected));
