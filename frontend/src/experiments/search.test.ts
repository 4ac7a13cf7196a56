import { expect, test } from "vitest";
import { validateExperimentSearch, validateListSearch, validateNewSearch } from "./search";

test("what does not fit is left out of the address", () => {
  expect(validateListSearch({ node: "3", state: "done", older: "x" })).toEqual({
    node: 3,
    state: "done",
    older: undefined,
  });
  expect(validateListSearch({ state: "gone" }).state).toBeUndefined();
  expect(validateNewSearch({ node: "-1", template: "rx-usecs", from: "7" })).toEqual({
    node: undefined,
    template: "rx-usecs",
    from: 7,
  });
  expect(validateExperimentSearch({ metric: "", arm: "2", share: "irq" })).toEqual({
    metric: undefined,
    arm: 2,
    share: "irq",
  });
});
