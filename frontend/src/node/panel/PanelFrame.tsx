import { CloseButton } from "@mantine/core";
import { type ReactNode, useEffect, useRef } from "react";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import styles from "./panel.module.css";

type FrameProps = { view: NodeView; title: string; note?: string; children: ReactNode };

/** A side panel with the name of the selected object and a close button. */
export function PanelFrame({ view, title, note, children }: FrameProps) {
  const frame = useRef<HTMLElement>(null);
  // Above the page's content on a narrow screen, possibly out of view.
  useEffect(() => {
    const top = frame.current?.getBoundingClientRect().top ?? 0;
    if (top < 0) frame.current?.scrollIntoView();
  }, []);
  return (
    <aside ref={frame} className={`card ${styles.panel}`} aria-label={title}>
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

/** A list of properties: name and value per line. */
export function PropertyList({ of }: { of: readonly (readonly [name: string, value: ReactNode] | null)[] }) {
  return (
    <dl className={nodeStyles.kv}>
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

/** A link that selects another object of this node. */
export function SelectionLink({ view, sel, children }: { view: NodeView; sel: string; children: ReactNode }) {
  return (
    <button type="button" className="link" onClick={() => view.navigate({ sel })}>
      {children}
    </button>
  );
}
