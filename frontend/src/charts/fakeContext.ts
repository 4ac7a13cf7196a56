import { vi } from "vitest";

export type DrawCall = { call: string; args: unknown[]; fillStyle: string; strokeStyle: string };

/** A canvas context for tests that records its calls; every character is 6 pixels wide, patterns are their colour. */
export function fakeContext(): { context: CanvasRenderingContext2D; drawn: DrawCall[] } {
  vi.stubGlobal(
    "OffscreenCanvas",
    class {
      getContext() {
        return null;
      }
    },
  );
  const drawn: DrawCall[] = [];
  const state: Record<string, unknown> = { fillStyle: "", strokeStyle: "" };
  const context = new Proxy(state, {
    get: (_, name: string) => {
      if (name in state) return state[name];
      if (name === "measureText") return (text: string) => ({ width: 6 * text.length });
      return (...args: unknown[]) =>
        drawn.push({ call: name, args, fillStyle: String(state.fillStyle), strokeStyle: String(state.strokeStyle) });
    },
    set: (_, name: string, value) => {
      state[name] = value;
      return true;
    },
  });
  return { context: context as unknown as CanvasRenderingContext2D, drawn };
}

/** Design tokens whose values are their names. */
export const TOKENS = { get: (token: string) => token };

/** The texts drawn, in order. */
export const drawnTexts = (drawn: DrawCall[]): unknown[] =>
  drawn.filter(({ call }) => call === "fillText").map(({ args }) => args[0]);
