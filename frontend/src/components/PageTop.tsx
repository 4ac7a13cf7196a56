import { type ReactNode, useLayoutEffect, useState } from "react";
import { createPortal } from "react-dom";

export const PAGE_TOP_ID = "page-top";

/** Renders a page's breadcrumb and facts into the top bar and sets the window title. */
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
