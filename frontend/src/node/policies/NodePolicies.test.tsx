import { render } from "@testing-library/react";
import { expect, test } from "vitest";
import { PERSISTED_POLICY_ID } from "../../api/constants";
import type { Decision } from "../../policies/types";
import { Head } from "./NodePolicies";

test("persisted settings are named without a link and a version, because no policy has that id", () => {
  const decision = {
    policy_id: PERSISTED_POLICY_ID,
    policy_name: "persisted settings",
    version: 1,
    mode: "enforce",
    at: new Date().toISOString(),
    outcome: null,
    holdout: null,
  } as Decision;
  const { container } = render(<Head decision={decision} />);
  expect(container.querySelector("a")).toBeNull();
  expect(container.textContent).toMatch(/^persisted settings enforce/);
});
