import { useEffect } from "react";
import type { NodeView } from "../nodeView";
import { CpuPanel } from "./CpuPanel";
import { IrqPanel } from "./IrqPanel";
import { NetdevPanel } from "./NetdevPanel";
import { TaskPanel } from "./TaskPanel";

/** The side panel of the selection in the URL: `irq:41`, `cpu:3`, `nic:eth0` or `task:812:5551`. Esc closes it unless a dialog has the focus. */
export function Panel({ view, sel }: { view: NodeView; sel: string }) {
  const { navigate } = view;
  useEffect(() => {
    const close = (event: KeyboardEvent) => {
      const above = event.target instanceof Element && event.target.closest("[role=dialog], [role=menu]") !== null;
      if (event.key === "Escape" && !event.defaultPrevented && !above) navigate({ sel: undefined });
    };
    document.addEventListener("keydown", close);
    return () => document.removeEventListener("keydown", close);
  }, [navigate]);
  const [kind = "", ...rest] = sel.split(":");
  if (kind === "irq") return <IrqPanel key={sel} view={view} number={Number(rest[0])} />;
  if (kind === "cpu") return <CpuPanel key={sel} view={view} cpu={Number(rest[0])} />;
  if (kind === "task")
    return (
      <TaskPanel
        key={rest[0]}
        view={view}
        pid={Number(rest[0])}
        started={rest[1] === undefined ? null : Number(rest[1])}
      />
    );
  return <NetdevPanel key={sel} view={view} name={rest.join(":")} />;
}
