import { useSyncExternalStore } from "react";

/** The time under the pointer, shared by all time axes of a page. */
export class Cursor {
  private timeMs: number | null = null;
  private readonly listeners = new Set<() => void>();

  readonly get = (): number | null => this.timeMs;

  set(timeMs: number | null): void {
    if (timeMs === this.timeMs) return;
    this.timeMs = timeMs;
    for (const listener of this.listeners) listener();
  }

  readonly on = (listener: () => void): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };
}

/** The time under the pointer as React state, for small read-outs; null without one. */
export function useCursor(cursor: Cursor): number | null {
  return useSyncExternalStore(cursor.on, cursor.get);
}
