import { expect, test } from "vitest";
import { freeSlot } from "./flowRuleTable";

test.each([
  [4, [], true, 3],
  [4, [3, 1], true, 2],
  [2, [0, 1], true, null],
  [4, [], false, null],
  [0, [], true, null],
])("of %d slots with rules in %j, the free one is chosen", (size, locations, complete, slot) => {
  const rules = locations.map((location) => ({ location, value: "", ours: false, context_rule: "" }));
  expect(freeSlot({ size, rules, complete })).toBe(slot);
});
