import { expect, test } from "vitest";
import { suggestedLabels } from "./labelSuggestions";

const known = ["role=db", "rack=r2", "rack=r10"];

test("a suggested value with a space is quoted", () => {
  expect(suggestedLabels(["note=row 2"], "")).toEqual(['note="row 2"']);
});

test.each([
  ["", ["role=db", "rack=r2", "rack=r10"]],
  ["ra", ["role=db", "rack=r2", "rack=r10"]],
  ["role=web ", ["role=web rack=r2", "role=web rack=r10"]],
  ["role=web,ra", ["role=web,rack=r2", "role=web,rack=r10"]],
])("suggestions complete the last word of “%s” and name no label twice", (line, lines) => {
  expect(suggestedLabels(known, line)).toEqual(lines);
});
