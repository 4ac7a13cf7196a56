import { MantineProvider } from "@mantine/core";
import { QueryClientProvider } from "@tanstack/react-query";
import { fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { type ReactNode, useState } from "react";
import { expect, test } from "vitest";
import type { Schemas } from "../api/client";
import { queryClient } from "../api/queries";
import type { NodeView } from "../node/nodeView";
import { PanelFrame } from "../node/panel/PanelFrame";
import { EditLabels } from "../settings/EditLabels";
import { ConfirmDialog } from "./ConfirmDialog";

const node = { id: 1, name: "db-1", labels: {} } as unknown as Schemas["NodeSummary"];

function Opener({ children }: { children: (close: () => void) => ReactNode }) {
  const [isOpen, setOpen] = useState(false);
  return (
    <MantineProvider env="test">
      <QueryClientProvider client={queryClient}>
        <button type="button" onClick={() => setOpen(true)}>
          Open
        </button>
        <input aria-label="Elsewhere" />
        {isOpen && children(() => setOpen(false))}
      </QueryClientProvider>
    </MantineProvider>
  );
}

const confirm = (close: () => void) => (
  <ConfirmDialog title="Delete" action="Delete" pending={false} error={null} onConfirm={close} onClose={close}>
    It is deleted.
  </ConfirmDialog>
);
const panel = (close: () => void) => (
  <PanelFrame view={{ navigate: close } as unknown as NodeView} title="IRQ 41">
    A property.
  </PanelFrame>
);

test.each<[string, (close: () => void) => ReactNode]>([
  ["a dialog that confirms", confirm],
  ["the labels of a node", (close) => <EditLabels node={node} onClose={close} />],
  ["a side panel", panel],
])("the focus returns to what opened %s", async (_, children) => {
  render(<Opener>{children}</Opener>);
  const opener = screen.getByRole("button", { name: "Open" });
  await userEvent.click(opener);
  const close = await screen.findByRole("button", { name: /^Close/ });
  close.focus();
  await userEvent.keyboard("{Enter}");
  expect(screen.queryByRole("button", { name: /^Close/ })).toBeNull();
  expect(document.activeElement).toBe(opener);
});

test("the focus stays where it was put before the panel closed", async () => {
  render(<Opener>{panel}</Opener>);
  await userEvent.click(screen.getByRole("button", { name: "Open" }));
  screen.getByLabelText("Elsewhere").focus();
  fireEvent.click(screen.getByRole("button", { name: /^Close/ }));
  expect(document.activeElement).toBe(screen.getByLabelText("Elsewhere"));
});
