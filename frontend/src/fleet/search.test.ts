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
])("%o is parsed as %o", (search, expected) => expect(validateFleetSearch(search)).toEqual(expected));
