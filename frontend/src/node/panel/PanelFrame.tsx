import { CloseButton } from "@mantine/core";
import { type ReactNode, useEffect, useRef } from "react";
import { useFocusReturn } from "../../components/useFocusReturn";
import type { ChartName } from "../../lib/metrics";
import nodeStyles from "../node.module.css";
import type { NodeView } from "../nodeView";
import styles from "./panel.module.css";

/** chart: the chart that has a line of the selected object. */
type FrameProps = { view: NodeView; title: string; note?: string; chart?: ChartName; children: ReactNode };

/** Here the panel covers the chart. */
const PHONE = "(max-width: 599px)";

/** The least part of the screen that a panel needs below its top to be noticed. */
const NOTICED = 0.3;

/**
 * Brings the panel into view: above the page's content on a narrow screen it may be out of view. On a phone it is a sheet
 * over the page, which takes the focus.
 */
function useEntrance() {
  const frame = useRef<HTMLElement>(null);
  const heading = useRef<HTMLHeadingElement>(null);
  useFocusReturn(); // before the sheet takes it
  useEffect(() => {
    const sheet = frame.current?.parentElement;
    if (sheet && getComputedStyle(sheet).position === "fixed") {
      sheet.scrollTop = 0;
      heading.current?.focus();
      return;
    }
    const top = frame.current?.getBoundingClientRect().top ?? 0;
    if (top < 0 || top > (1 - NOTICED) * innerHeight) frame.current?.scrollIntoView();
  }, []);
  return { frame, heading };
}

/** A side panel with the name of the selected object and a close button. */
export function PanelFrame({ view, title, note, chart, children }: FrameProps) {
  const { frame, heading } = useEntrance();
  return (
    <aside ref={frame} className={`card ${styles.panel}`} aria-label={title}>
      <h2 ref={heading} tabIndex={-1}>
        <span className={styles.title}>{title}</span>
        <small className={styles.ellipsis} title={note}>
          {note}
        </small>
        <span className="grow" />
        {chart !== undefined && (
          <button
            type="button"
            className="link"
            title={`The chart with a line for ${title}`}
            onClick={() => view.navigate({ chart, ...(matchMedia(PHONE).matches && { sel: undefined }) })}
          >
            chart
          </button>
        )}
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
