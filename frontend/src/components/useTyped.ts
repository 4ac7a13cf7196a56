import { useEffect, useEffectEvent, useState } from "react";

const TYPING_MS = 250;

/**
 * The text of a field whose value is in the URL; it is published without spaces around it when typing pauses.
 *
 * value: the published text. The field takes it over unless it published that itself: more may have been typed since.
 * inUrl: what the URL has for a text.
 */
export function useTyped(value: string, publish: (text: string) => void, inUrl = (text: string) => text.trim()) {
  const [{ typed, shown, own }, set] = useState({ typed: value, shown: value, own: [] as string[] });
  if (shown !== value) {
    // navigations arrive in order, or not at all where a later one overtakes them
    const at = own.indexOf(value);
    set({ typed: at < 0 ? value : typed, shown: value, own: at < 0 ? [] : own.slice(at + 1) });
  }
  const settle = useEffectEvent(() => {
    const text = inUrl(typed);
    if (text === inUrl(own.at(-1) ?? shown)) return;
    set((before) => ({ ...before, own: [...before.own, text] }));
    publish(text);
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: only typing publishes
  useEffect(() => {
    const timer = setTimeout(settle, TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return { typed, type: (text: string) => set((before) => ({ ...before, typed: text })) };
}
