import { useRouter } from "@tanstack/react-router";
import { useEffect } from "react";
import type { NodeSearch } from "../search";

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** What has a use of its own for Space. */
const TAKES_SPACE = "summary, button, [role=dialog], [role=menu], [contenteditable]";

const takesSpace = (target: EventTarget | null): boolean =>
  target instanceof Element && target.closest(TAKES_SPACE) !== null;

/** Space pauses and resumes, Backspace returns to the previous range. */
export function useTimeKeys(isPast: boolean, pause: () => void, navigate: (change: Partial<NodeSearch>) => void): void {
  const { history } = useRouter();
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      const live = () => navigate({ from: undefined, to: undefined });
      if (event.key === " " && !takesSpace(event.target)) {
        event.preventDefault();
        if (isPast) live();
        else pause();
      } else if (event.key === "Backspace" && isPast) {
        event.preventDefault();
        if (history.canGoBack()) history.back();
        else live();
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [isPast, pause, navigate, history]);
}
