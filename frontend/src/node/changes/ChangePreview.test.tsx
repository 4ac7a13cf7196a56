import { MantineProvider } from "@mantine/core";
import { fireEvent, render, screen } from "@testing-library/react";
import { expect, test, vi } from "vitest";
import type { Schemas } from "../../api/client";
import type { NodeView } from "../nodeView";
import { Panel } from "../panel/Panel";
import { ChangePreview } from "./ChangePreview";

const ANSWER: Schemas["PreviewResponse"] = {
  plan: { actions: [{ key: "irq/41/affinity", was: "0-7", becomes: "6", reason: "" }], allow_isolated: false },
  sentence: "IRQ 41 (eth0-TxRx-3) changes from CPUs 0-7 to CPU 6.",
  commands: [],
  expected: [],
  warnings: [],
  refused: [],
  can_apply: true,
  blocked_because: null,
};

test("a preview starts with its effect in one sentence", () => {
  render(<ChangePreview preview={ANSWER} error={null} confirmS={120} limitUs={null} />);
  const preview = screen.getByRole("region", { name: "Preview" });
  expect(preview.firstElementChild?.textContent).toBe(ANSWER.sentence);
});

test("a refused preview shows its reason once and no effect", () => {
  const sentence = "CPU 99 is not online.";
  const refused = [{ code: "offline", key: "irq/41/affinity", sentence }] as typeof ANSWER.refused;
  render(
    <ChangePreview
      preview={{ ...ANSWER, sentence: `Refused: ${sentence}`, refused }}
      error={null}
      confirmS={120}
      limitUs={null}
    />,
  );
  expect(screen.getAllByText(/CPU 99 is not online/)).toHaveLength(1);
});

test("Esc closes the panel unless a dialog has the focus", () => {
  const navigate = vi.fn();
  const view = { navigate, inventory: null } as unknown as NodeView;
  render(
    <MantineProvider>
      <Panel view={view} sel="irq:41" />
      <div role="dialog">
        <input aria-label="From" />
      </div>
    </MantineProvider>,
  );
  fireEvent.keyDown(screen.getByLabelText("From"), { key: "Escape" });
  expect(navigate).not.toHaveBeenCalled();
  fireEvent.keyDown(document.body, { key: "Escape" });
  expect(navigate).toHaveBeenCalledWith({ sel: undefined });
});
