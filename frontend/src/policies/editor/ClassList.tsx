import { Button, Input, TextInput } from "@mantine/core";
import { type KeyboardEvent, useLayoutEffect, useRef, useState } from "react";
import { type ClassDraft, MATCHER_NAMES, MATCHERS, MOST_CLASSES, matchText, moved, nextClass } from "./classDraft";
import styles from "./classList.module.css";

type Props = {
  label: string;
  help: string;
  list: ClassDraft[];
  /** By path, why a field does not fit. */
  wrong: Record<string, string>;
  path: string;
  onChange: (list: ClassDraft[]) => void;
};

/** The classes in their order, which decides between equals: dragged by a handle, or moved by its buttons and arrows. */
export function ClassList({ label, help, list, wrong, path, onChange }: Props) {
  const rows = useRef<HTMLOListElement>(null);
  const [dragged, setDragged] = useState<string | null>(null);
  const [said, setSaid] = useState("");
  // A row that moves takes the keyboard with it; the browser lets go of what is taken out and put in again.
  const focused = useRef<Element | null>(null);
  useLayoutEffect(() => {
    if (focused.current instanceof HTMLElement) focused.current.focus();
    focused.current = null;
  });
  const move = (from: number, to: number) => {
    const one = list[from];
    if (one === undefined || to < 0 || to >= list.length || to === from) return;
    focused.current = document.activeElement;
    setSaid(`${one.name} is now ${to + 1} of ${list.length}.`);
    onChange(moved(list, from, to));
  };
  const drag = (key: string, y: number) => {
    const from = list.findIndex((one) => one.key === key);
    const to = [...(rows.current?.children ?? [])].filter((row, index) => {
      const { top, height } = row.getBoundingClientRect();
      return index !== from && y > top + height / 2;
    }).length;
    move(from, to);
  };
  return (
    <Input.Wrapper
      size="xs"
      label={label}
      labelElement="div"
      description={help}
      error={wrong[path]}
      className={styles.list ?? ""}
    >
      <ol ref={rows} aria-label={label}>
        {list.map((one, index) => (
          <Row
            key={one.key}
            of={one}
            isFirst={index === 0}
            isLast={index === list.length - 1}
            isDragged={dragged === one.key}
            wrongOf={(field) => wrong[`${path}[${index}].${field}`]}
            onChange={(changed) => onChange(list.map((other) => (other.key === one.key ? changed : other)))}
            onMove={(by) => move(index, index + by)}
            onRemove={list.length > 1 ? () => onChange(list.filter((other) => other.key !== one.key)) : null}
            onGrab={() => setDragged(one.key)}
            onDrag={(y) => dragged === one.key && drag(one.key, y)}
            onDrop={() => setDragged(null)}
          />
        ))}
      </ol>
      {list.length < MOST_CLASSES && <Button onClick={() => onChange([...list, nextClass(list)])}>Add a class</Button>}
      <span className="visually-hidden" role="status">
        {said}
      </span>
    </Input.Wrapper>
  );
}

type RowProps = {
  of: ClassDraft;
  isFirst: boolean;
  isLast: boolean;
  isDragged: boolean;
  wrongOf: (field: keyof ClassDraft) => string | undefined;
  onChange: (changed: ClassDraft) => void;
  onMove: (by: number) => void;
  onRemove: (() => void) | null;
  onGrab: () => void;
  onDrag: (y: number) => void;
  onDrop: () => void;
};

function Row({ of, isFirst, isLast, isDragged, wrongOf, onChange, onMove, onRemove, ...grip }: RowProps) {
  const input = (field: Exclude<keyof ClassDraft, "key">, label: string, help?: string, placeholder?: string) => (
    <TextInput
      label={label}
      description={help}
      placeholder={placeholder}
      aria-label={`${label}, ${of.name}`}
      value={of[field]}
      error={wrongOf(field)}
      autoComplete="off"
      spellCheck={false}
      onChange={(event) => onChange({ ...of, [field]: event.currentTarget.value })}
    />
  );
  const belongs = matchText(of);
  const hidden = [...MATCHER_NAMES, "histogram" as const].some((field) => wrongOf(field) !== undefined);
  const arrows = (event: KeyboardEvent) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    onMove(by);
  };
  return (
    <li data-dragged={isDragged || undefined} aria-label={of.name}>
      <button
        type="button"
        className={styles.grip}
        aria-label={`Move ${of.name}`}
        title="Drag, or use the arrow keys"
        onKeyDown={arrows}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId);
          grip.onGrab();
        }}
        onPointerMove={(event) => grip.onDrag(event.clientY)}
        onPointerUp={grip.onDrop}
        onPointerCancel={grip.onDrop}
      >
        <span aria-hidden="true">⠿</span>
      </button>
      <div className={styles.promise}>
        {input("name", "Class")}
        {input("target_percent", "P, %")}
        {input("deadline_ms", "Deadline, ms", undefined, "none")}
      </div>
      <div className={styles.buttons}>
        <Button aria-label={`${of.name} up`} aria-disabled={isFirst} data-disabled={isFirst} onClick={() => onMove(-1)}>
          ↑
        </Button>
        <Button aria-label={`${of.name} down`} aria-disabled={isLast} data-disabled={isLast} onClick={() => onMove(1)}>
          ↓
        </Button>
        <Button aria-label={`Remove ${of.name}`} disabled={onRemove === null} onClick={() => onRemove?.()}>
          ×
        </Button>
      </div>
      <details open={hidden || undefined}>
        <summary>
          {belongs === "" ? <span className="muted">no pattern: only workers that ask for it by name</span> : belongs}
        </summary>
        <div className={styles.matchers}>
          {MATCHER_NAMES.map((name) => (
            <div key={name}>{input(name, MATCHERS[name].label, MATCHERS[name].help, "any")}</div>
          ))}
          <div className={styles.wide}>
            {input(
              "histogram",
              "Response times from",
              "For work that does not ask at the gate: a Prometheus page on the node and a histogram's name after #.",
              "http://127.0.0.1:9100/metrics#http_request_duration_seconds",
            )}
          </div>
        </div>
      </details>
    </li>
  );
}
