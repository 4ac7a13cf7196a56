import { useSyncExternalStore } from "react";

/** The moment under the pointer, shared by everything on a page that has a time axis. */
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

/** The moment under the pointer as state: for small read-outs only, everything else draws by itself. */
export function useCursor(cursor: Cursor): number | null {
  return useSyncExternalStore(cursor.on, cursor.get);
}
