import { useEffect } from "react";

/** Returns the focus to what had it before a dialog or panel appeared, unless something else has it in the end. */
export function useFocusReturn(): void {
  useEffect(() => {
    const opener = document.activeElement;
    return () => {
      if (document.activeElement === document.body && opener instanceof HTMLElement)
        opener.focus({ preventScroll: true });
    };
  }, []);
}
