import { MantineProvider } from "@mantine/core";
import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { expect, test, vi } from "vitest";
import type { NodeView } from "../nodeView";
import type { Netdev } from "../types";
import { FlowRules } from "./FlowRules";

vi.mock("../changes/ApplyPlan", () => ({
  ApplyPlan: () => {
    const [applied, setApplied] = useState(false);
    return (
      <button type="button" disabled={applied} onClick={() => setApplied(true)}>
        Apply
      </button>
    );
  },
}));

test.each([
  ["a rule that was added and rolled back is added again", "Preview"],
  ["a deletion that was rolled back is repeated", "Delete the rule in slot 7"],
])("%s", async (_, name) => {
  const rule = { location: 7, value: "flow-type tcp4 action 1", context_rule: null, ours: true };
  const netdev = { name: "eth0", flow_rules: { size: 8, complete: true, rules: [rule] } } as unknown as Netdev;
  render(
    <MantineProvider>
      <FlowRules view={{ node: {} } as NodeView} netdev={netdev} />
    </MantineProvider>,
  );
  await userEvent.type(screen.getByLabelText("Rule"), "flow-type tcp4 action 3");
  const apply = () => screen.getByRole<HTMLButtonElement>("button", { name: "Apply" });
  await userEvent.click(screen.getByRole("button", { name }));
  await userEvent.click(apply());
  expect(apply().disabled).toBe(true);
  await userEvent.click(screen.getByRole("button", { name }));
  expect(apply().disabled).toBe(false);
  await userEvent.click(screen.getByRole("button", { name: "Close the preview" }));
  expect(screen.queryByRole("button", { name: "Apply" })).toBeNull();
});
