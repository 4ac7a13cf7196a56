import { expect, test } from "vitest";
import { validateStudySearch } from "./search";

test.each([
  [
    { pattern: "aa", v: "1.5" },
    { pattern: "aa", v: 1.5 },
  ],
  [{ pattern: "ring", v: "3" }, {}],
  [{ v: "" }, { v: 0 }],
])("the URL's %o selects %o", (search, selected) => {
  expect(validateStudySearch(search)).toEqual({ pattern: undefined, v: undefined, ...selected });
});
