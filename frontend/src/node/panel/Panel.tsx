import { CloseButton } from "@mantine/core";
import { type ReactNode, useEffect } from "react";
import styles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { CpuPanel } from "./CpuPanel";
import { IrqPanel } from "./IrqPanel";
import { NetdevPanel } from "./NetdevPanel";

/** What is selected in the URL: `irq:41`, `cpu:3`, `nic:eth0`. Beside the page, never over it; Esc closes it unless it closes something above. */
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
  const [kind, rest] = [sel.slice(0, 3), sel.slice(4)];
  if (kind === "irq") return <IrqPanel key={sel} view={view} number={Number(rest)} />;
  if (kind === "cpu") return <CpuPanel key={sel} view={view} cpu={Number(rest)} />;
  return <NetdevPanel key={sel} view={view} name={rest} />;
}

type FrameProps = { view: NodeView; title: string; note?: string; children: ReactNode };

/** The panel's frame: what is selected, and how to close it. */
export function PanelFrame({ view, title, note, children }: FrameProps) {
  return (
    <aside className={`card ${styles.panel}`} aria-label={title}>
      <h2>
        {title}{" "}
        <small className={styles.ellipsis} title={note}>
          {note}
        </small>
        <span className="grow" />
        <CloseButton size="sm" aria-label="Close (Esc)" title="Esc" onClick={() => view.navigate({ sel: undefined })} />
      </h2>
      <div className="body">{children}</div>
    </aside>
  );
}

/** Names and values below each other. */
export function Facts({ of }: { of: readonly (readonly [name: string, value: ReactNode] | null)[] }) {
  return (
    <dl className={styles.kv}>
      {of
        .filter((fact) => fact !== null)
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

/** A link to something else of this node. */
export function Select({ view, sel, children }: { view: NodeView; sel: string; children: ReactNode }) {
  return (
    <button type="button" className="link" onClick={() => view.navigate({ sel })}>
      {children}
    </button>
  );
}
