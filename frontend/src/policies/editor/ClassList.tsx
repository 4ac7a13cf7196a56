import { Button, Input } from "@mantine/core";
import { type KeyboardEvent, useLayoutEffect, useRef, useState } from "react";
import { Fold } from "../../forms/Fold";
import { SchemaInput } from "../../forms/SchemaField";
import { fieldAt, fieldsOf, labelOf, type Schema } from "../../forms/schema";
import { type ClassDraft, classSchema, matchText, moveItem, nextClass } from "./classDraft";
import styles from "./classList.module.css";

type Props = {
  schema: Schema;
  list: ClassDraft[];
  /** Error messages of invalid fields, by path. */
  wrong: Record<string, string>;
  path: string;
  onChange: (list: ClassDraft[]) => void;
};

/** The classes in order of precedence, reordered by drag and drop, buttons or arrow keys. */
export function ClassList({ schema, list, wrong, path, onChange }: Props) {
  const label = labelOf(schema);
  const rows = useRef<HTMLOListElement>(null);
  const [dragged, setDragged] = useState<string | null>(null);
  const [announced, setAnnounced] = useState("");
  // Moving a row in the document drops its focus, so it is restored.
  const focused = useRef<Element | null>(null);
  useLayoutEffect(() => {
    if (focused.current instanceof HTMLElement) focused.current.focus();
    focused.current = null;
  });
  const move = (from: number, to: number) => {
    const one = list[from];
    if (one === undefined || to < 0 || to >= list.length || to === from) return;
    focused.current = document.activeElement;
    setAnnounced(`${one.values.name} is now ${to + 1} of ${list.length}.`);
    onChange(moveItem(list, from, to));
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
      label={
        <>
          {label}
          {list.length < (schema.maxItems ?? Number.POSITIVE_INFINITY) && (
            <Button onClick={() => onChange([...list, nextClass(list)])}>Add a class</Button>
          )}
        </>
      }
      labelElement="div"
      labelProps={{ className: styles.heading ?? "" }}
      description={schema.description}
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
      <span className="visually-hidden" role="status">
        {announced}
      </span>
    </Input.Wrapper>
  );
}

type RowProps = {
  of: ClassDraft;
  isFirst: boolean;
  isLast: boolean;
  isDragged: boolean;
  wrongOf: (path: string) => string | undefined;
  onChange: (changed: ClassDraft) => void;
  onMove: (by: number) => void;
  onRemove: (() => void) | null;
  onGrab: () => void;
  onDrag: (y: number) => void;
  onDrop: () => void;
};

function Row({ of, isFirst, isLast, isDragged, wrongOf, onChange, onMove, onRemove, ...grip }: RowProps) {
  const name = of.values.name ?? "";
  const match = fieldAt(classSchema(), "match");
  /** help: whether the field's help text is shown. */
  const input = (field: string, help = false) => {
    const { description, ...schema } = fieldAt(classSchema(), field);
    return (
      <SchemaInput
        schema={help && description !== undefined ? { ...schema, description } : schema}
        ariaLabel={`${labelOf(schema)}, ${name}`}
        value={of.values[field] ?? ""}
        error={wrongOf(field)}
        onChange={(value) => onChange({ ...of, values: { ...of.values, [field]: value } })}
      />
    );
  };
  const matchers = fieldsOf(match).map(([matcher]) => `match.${matcher}`);
  const belongs = matchText(of);
  const hidden = [...matchers, "histogram"].some((field) => wrongOf(field) !== undefined);
  const arrows = (event: KeyboardEvent) => {
    const by = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    onMove(by);
  };
  return (
    <li data-dragged={isDragged || undefined} aria-label={name}>
      <button
        type="button"
        className={styles.grip}
        aria-label={`Move ${name}`}
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
        {input("name")}
        {input("target_percent")}
        {input("deadline_ms")}
      </div>
      <div className={styles.buttons}>
        <Button aria-label={`${name} up`} aria-disabled={isFirst} data-disabled={isFirst} onClick={() => onMove(-1)}>
          ↑
        </Button>
        <Button aria-label={`${name} down`} aria-disabled={isLast} data-disabled={isLast} onClick={() => onMove(1)}>
          ↓
        </Button>
        <Button aria-label={`Remove ${name}`} disabled={onRemove === null} onClick={() => onRemove?.()}>
          ×
        </Button>
      </div>
      <Fold
        isWrong={hidden}
        summary={
          belongs === "" ? (
            <span className="muted" title="Only workers that name this class at the gate belong to it.">
              no pattern: gate only
            </span>
          ) : (
            belongs
          )
        }
      >
        <div className={styles.matchers}>
          {matchers.map((field) => (
            <div key={field}>{input(field, true)}</div>
          ))}
          <div className={styles.wide}>{input("histogram", true)}</div>
        </div>
      </Fold>
    </li>
  );
}
