import { useMemo, useRef } from "react";

const RESORT_MS = 10_000;

type Keyed = { key: string };

/** Items in a former order of their keys; new ones last. */
export function stableOrder<T extends Keyed>(items: T[], order: string[]): T[] {
  const place = new Map(order.map((key, index) => [key, index]));
  return [...items].sort((a, b) => (place.get(a.key) ?? order.length) - (place.get(b.key) ?? order.length));
}

/**
 * Items in an order that changes at most every 10 s, and not while the element has pointer or focus. element: its CSS
 * selector. by: what they are sorted by; a new one sorts them at once.
 */
export function useStableOrder<T extends Keyed>(items: T[], element: string, by = ""): T[] {
  const order = useRef<{ at: number; by: string; keys: string[] }>({ at: 0, by, keys: [] });
  return useMemo(() => {
    const isInUse = document.querySelector(`${element}:hover, ${element}:focus-within`) !== null;
    if (order.current.by !== by || (!isInUse && Date.now() - order.current.at > RESORT_MS))
      order.current = { at: Date.now(), by, keys: items.map(({ key }) => key) };
    return stableOrder(items, order.current.keys);
  }, [items, element, by]);
}
