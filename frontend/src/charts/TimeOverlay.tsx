import { type PointerEvent, type ReactNode, useEffect, useRef } from "react";
import styles from "./charts.module.css";
import type { Cursor } from "./cursor";

export type Range = { from: number; to: number };

/** A mark on a time axis: a change, or a decision that did not become one. */
export type Mark = { key: string; timeMs: number; label: string; kind?: "decision" };

/** Range, marks, cursor and callbacks shared by all time axes of a page. */
export type TimeAxis = {
  range: Range;
  marks: Mark[];
  gaps?: Range[];
  cursor: Cursor;
  /** Called with a range brushed by the pointer. */
  onZoom: (range: Range) => void;
  /** Called with true when brushing starts and false when it ends; live data must not move in between. */
  onHold: (held: boolean) => void;
};

/** Minimum length of a drag in pixels; shorter ones are clicks. */
const DRAG_PX = 4;

type Props = TimeAxis & {
  onHover?: (event: PointerEvent<HTMLDivElement> | null) => void;
  onClick?: (event: PointerEvent<HTMLDivElement>) => void;
  children?: ReactNode;
};

/** Overlay of a plot area: crosshair, marks, gaps, and the range being brushed. */
export function TimeOverlay({ range, marks, gaps, cursor, onZoom, onHold, onHover, onClick, children }: Props) {
  const line = useRef<HTMLDivElement>(null);
  const brush = useRef<HTMLDivElement>(null);
  const drag = useRef<{ x: number; range: Range; drawing: boolean } | null>(null);
  const shown = useRef(range);
  const span = Math.max(1, range.to - range.from);
  const place = (timeMs: number) => `${(100 * (timeMs - range.from)) / span}%`;

  useEffect(() => {
    shown.current = range;
    const draw = () => {
      if (line.current === null) return;
      const timeMs = cursor.get();
      const { from, to } = shown.current;
      const inside = timeMs !== null && timeMs >= from && timeMs <= to;
      line.current.style.display = inside ? "block" : "none";
      if (inside) line.current.style.left = `${(100 * (timeMs - from)) / (to - from)}%`;
    };
    draw();
    return cursor.on(draw);
  }, [cursor, range]);

  const fraction = (event: PointerEvent<HTMLDivElement>) => {
    const box = event.currentTarget.getBoundingClientRect();
    return Math.max(0, Math.min(1, (event.clientX - box.left) / Math.max(1, box.width)));
  };
  const stop = (event: PointerEvent<HTMLDivElement>) => {
    if (drag.current?.drawing) onHold(false);
    drag.current = null;
    if (brush.current !== null) brush.current.style.display = "none";
    event.currentTarget.releasePointerCapture(event.pointerId);
  };

  return (
    <div
      className={styles.overlay}
      onPointerDown={(event) => {
        if (event.button !== 0) return;
        event.currentTarget.setPointerCapture(event.pointerId);
        drag.current = { x: fraction(event), range, drawing: false };
      }}
      onPointerMove={(event) => {
        const x = fraction(event);
        const { from, to } = drag.current?.range ?? range;
        cursor.set(from + x * (to - from));
        onHover?.(event);
        const dragged = drag.current;
        if (dragged === null || brush.current === null) return;
        const width = event.currentTarget.clientWidth;
        if (!dragged.drawing && Math.abs(x - dragged.x) * width >= DRAG_PX) {
          dragged.drawing = true;
          onHold(true);
        }
        if (!dragged.drawing) return;
        brush.current.style.display = "block";
        brush.current.style.left = `${100 * Math.min(x, dragged.x)}%`;
        brush.current.style.width = `${100 * Math.abs(x - dragged.x)}%`;
      }}
      onPointerUp={(event) => {
        const dragged = drag.current;
        if (dragged === null) return;
        const x = fraction(event);
        stop(event);
        if (!dragged.drawing) {
          onClick?.(event);
          return;
        }
        const { from, to } = dragged.range;
        const ends = [dragged.x, x].map((end) => Math.round(from + end * (to - from))).sort((a, b) => a - b);
        onZoom({ from: ends[0] ?? from, to: Math.max((ends[0] ?? from) + 1000, ends[1] ?? to) });
      }}
      onPointerCancel={stop}
      onPointerLeave={() => {
        if (drag.current !== null) return;
        cursor.set(null);
        onHover?.(null);
      }}
    >
      {gaps?.map((gap) => (
        <div
          key={gap.from}
          className={`${styles.gap} hatched`}
          style={{ left: place(gap.from), width: `${(100 * (gap.to - gap.from)) / span}%` }}
        />
      ))}
      {marks
        .filter(({ timeMs }) => timeMs >= range.from && timeMs <= range.to)
        .map((mark) => (
          <div key={mark.key} className={styles.mark} style={{ left: place(mark.timeMs) }} title={mark.label} />
        ))}
      <div ref={line} className={styles.cursor} />
      <div ref={brush} className={styles.brush} />
      {children}
    </div>
  );
}
