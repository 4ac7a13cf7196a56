import { Modal } from "@mantine/core";
import { useEffect, useState } from "react";
import { SearchIcon } from "./icons";
import { Palette } from "./Palette";
import styles from "./shell.module.css";

const KEYS = [
  ["⌘K or Ctrl K", "Search nodes, CPUs, IRQs, policies, pages; actions"],
  ["/", "Filter"],
  ["?", "Keyboard shortcuts"],
  ["Arrows", "Move in a map, heatmap or matrix"],
  ["Enter", "Open what is selected"],
  ["Space", "Pause or resume (node page)"],
  ["Backspace", "Previous time range (node page)"],
  ["Esc", "Close"],
] as const;

function isTyping(target: EventTarget | null): boolean {
  return (
    target instanceof HTMLElement && (target.isContentEditable || /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName))
  );
}

/** The global keyboard shortcuts, and the buttons for the palette and the list of shortcuts. */
export function Keys() {
  const [shown, setShown] = useState<"keys" | "palette" | null>(null);
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if ((event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k") {
        event.preventDefault();
        setShown("palette");
        return;
      }
      if (isTyping(event.target) || event.metaKey || event.ctrlKey || event.altKey) return;
      if (event.key === "?") setShown("keys");
      else if (event.key === "/") {
        const filter = document.querySelector<HTMLElement>("[data-filter]");
        if (filter === null) return;
        event.preventDefault();
        filter.focus();
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, []);
  const close = () => setShown(null);
  return (
    <div className={styles.keys}>
      <button type="button" className="kbd" onClick={() => setShown("palette")} aria-label="⌘K, search">
        <span className={styles.wide}>⌘K</span>
        <span className={styles.phone}>
          <SearchIcon />
        </span>
      </button>
      <button
        type="button"
        className={`kbd ${styles.wide}`}
        onClick={() => setShown("keys")}
        aria-label="?, keyboard shortcuts"
      >
        ?
      </button>
      {shown === "palette" && <Palette onClose={close} />}
      <Modal
        opened={shown === "keys"}
        onClose={close}
        title="Keyboard shortcuts"
        closeButtonProps={{ "aria-label": "Close" }}
      >
        <dl className={styles.keyList}>
          {KEYS.map(([key, meaning]) => [
            <dt key={key}>
              <kbd className="kbd">{key}</kbd>
            </dt>,
            <dd key={`${key} meaning`}>{meaning}</dd>,
          ])}
        </dl>
      </Modal>
    </div>
  );
}
