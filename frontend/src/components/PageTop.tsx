import { type ReactNode, useLayoutEffect, useState } from "react";
import { createPortal } from "react-dom";

export const PAGE_TOP_ID = "page-top";

/** Puts a page's breadcrumb and facts into the top bar, and its name into the window's title. */
export function PageTop({ title, children }: { title: string; children: ReactNode }) {
  const [slot, setSlot] = useState<HTMLElement | null>(null);
  useLayoutEffect(() => setSlot(document.getElementById(PAGE_TOP_ID)), []);
  return (
    <>
      <title>{`${title} · Coresteer`}</title>
      {slot && createPortal(children, slot)}
    </>
  );
}
