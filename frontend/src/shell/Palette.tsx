import { Modal, TextInput } from "@mantine/core";
import { type KeyboardEvent, useId, useState } from "react";
import { useFocusReturn } from "../components/useFocusReturn";
import { find } from "./paletteSearch";
import styles from "./shell.module.css";
import { usePaletteEntries } from "./usePaletteEntries";

const LABEL = "Search nodes, CPUs, IRQs, policies, pages and actions";

/** Search dialog that opens what it finds, or carries out an action. */
export function Palette({ onClose }: { onClose: () => void }) {
  const [query, setQuery] = useState("");
  const [selected, setSelected] = useState(0);
  useFocusReturn();
  const id = useId();
  const entries = usePaletteEntries(query);
  const groups = find(entries, query);
  const shown = groups.flatMap((group) => group.entries);
  const at = Math.min(selected, shown.length - 1);
  const open = (index: number) => {
    const entry = shown[index];
    if (entry === undefined) return;
    onClose();
    void entry.go();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && shown.length > 0) {
      event.preventDefault();
      const next = (at + step + shown.length) % shown.length;
      setSelected(next);
      document.getElementById(`${id}-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(at);
    }
  };
  let index = -1;
  return (
    <Modal
      opened
      onClose={onClose}
      withCloseButton={false}
      title="Search"
      styles={{ header: { display: "none" } }} // the title names the dialog
      yOffset="calc(var(--head) + 12px)"
      padding="sm"
    >
      <TextInput
        data-autofocus
        size="sm"
        placeholder="Node, CPU, IRQ, policy, page or action"
        aria-label={LABEL}
        role="combobox"
        aria-expanded="true"
        aria-controls={`${id}-list`}
        aria-activedescendant={at >= 0 ? `${id}-${at}` : undefined}
        value={query}
        onChange={(event) => {
          setQuery(event.currentTarget.value);
          setSelected(0);
        }}
        onKeyDown={onKey}
      />
      <div id={`${id}-list`} className={styles.results} role="listbox" aria-label="Found">
        {groups.map(({ group, entries: found, more }) => (
          // biome-ignore lint/a11y/useSemanticElements: a fieldset is no child of a listbox
          <div key={group} role="group" aria-label={group}>
            <div className={styles.group} aria-hidden="true">
              {group}
              {more > 0 && <span>{more.toLocaleString("en")} more</span>}
            </div>
            {found.map((entry) => {
              index += 1;
              const own = index;
              return (
                // biome-ignore lint/a11y/useKeyWithClickEvents: the combobox above has the keys
                <div
                  key={entry.key}
                  id={`${id}-${own}`}
                  className={styles.found}
                  role="option"
                  tabIndex={-1}
                  aria-selected={own === at}
                  onClick={() => open(own)}
                >
                  <span className={styles.foundText}>{entry.label ?? entry.text}</span>
                  {entry.hint !== undefined && <span className="muted">{entry.hint}</span>}
                </div>
              );
            })}
          </div>
        ))}
      </div>
      {shown.length === 0 && (
        <p className="muted" role="status">
          Nothing fits. CPUs and IRQs are those of the open node, or of the node whose whole name you type.
        </p>
      )}
    </Modal>
  );
}
