import { Modal, TextInput } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useId, useState } from "react";
import { nodesQuery } from "../api/queries";
import { HealthDot, SimulatedTag } from "../components/NodeTags";
import { PAGES, SETTINGS_SECTIONS } from "./pages";
import styles from "./shell.module.css";

const TARGETS = [...PAGES.filter(({ to }) => to !== "/settings"), ...SETTINGS_SECTIONS];
const MAX_NODES = 50;

/** Search dialog that opens a node or a page by part of its name. */
export function Palette({ onClose }: { onClose: () => void }) {
  const nodes = useQuery(nodesQuery).data ?? [];
  const navigate = useNavigate();
  const [query, setQuery] = useState("");
  const [selected, setSelected] = useState(0);
  const id = useId();
  const terms = query.toLowerCase().split(/\s+/);
  const fits = (name: string) => terms.every((term) => name.toLowerCase().includes(term));
  const entries = [
    ...nodes
      .filter((node) => fits(node.name))
      .slice(0, MAX_NODES)
      .map((node) => ({
        key: `node ${node.id}`,
        label: (
          <>
            <HealthDot health={node.health} />
            {node.name} {node.simulated && <SimulatedTag />}
          </>
        ),
        go: () => navigate({ to: "/nodes/$nodeId", params: { nodeId: node.id } }),
      })),
    ...TARGETS.filter(({ label }) => fits(label)).map(({ to, label }) => ({
      key: to,
      label,
      go: () => navigate({ to }),
    })),
  ];
  const at = Math.min(selected, entries.length - 1);
  const open = (index: number) => {
    const entry = entries[index];
    if (entry === undefined) return;
    onClose();
    void entry.go();
  };
  const onKey = (event: KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step !== undefined && entries.length > 0) {
      event.preventDefault();
      const next = (at + step + entries.length) % entries.length;
      setSelected(next);
      document.getElementById(`${id}-${next}`)?.scrollIntoView({ block: "nearest" });
    } else if (event.key === "Enter") {
      event.preventDefault();
      open(at);
    }
  };
  return (
    <Modal opened onClose={onClose} withCloseButton={false} aria-label="Go to" yOffset="12vh" padding="sm">
      <TextInput
        data-autofocus
        size="sm"
        placeholder="Node or page"
        aria-label="Node or page"
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
      <div id={`${id}-list`} className={styles.results} role="listbox" aria-label="Nodes and pages">
        {entries.map((entry, index) => (
          // biome-ignore lint/a11y/useKeyWithClickEvents: the combobox above has the keys
          <div
            key={entry.key}
            id={`${id}-${index}`}
            role="option"
            tabIndex={-1}
            aria-selected={index === at}
            onClick={() => open(index)}
          >
            {entry.label}
          </div>
        ))}
      </div>
      {entries.length === 0 && <p className="muted">No node or page has this name.</p>}
    </Modal>
  );
}
