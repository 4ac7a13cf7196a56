import type { ReactNode } from "react";

/** Below this width, tables show each row as a block: see `.scroll` in theme/base.css. */
const PHONE = "(max-width: 599px)";

/** Writes each cell's column heading to data-label, which is shown beside the cell where the table is stacked. */
function labelCells(tables: HTMLCollectionOf<HTMLTableElement>): void {
  for (const table of tables) {
    const headings = [...(table.tHead?.rows[0]?.cells ?? [])].map((cell) =>
      (cell.textContent ?? "").replace(/[↑↓↕]/g, "").trim(),
    );
    for (const row of [...table.tBodies].flatMap((body) => [...body.rows])) {
      let column = 0;
      for (const cell of row.cells) {
        const label = cell.colSpan === 1 && column > 0 ? (headings[column] ?? "") : "";
        if (cell.dataset.label !== label) cell.dataset.label = label;
        column += cell.colSpan;
      }
    }
  }
}

function labelWhileNarrow(section: HTMLElement | null) {
  if (section === null || typeof matchMedia === "undefined") return;
  const narrow = matchMedia(PHONE);
  const tables = section.getElementsByTagName("table");
  const observer = new MutationObserver(() => labelCells(tables));
  const update = () => {
    observer.disconnect();
    if (!narrow.matches) return;
    labelCells(tables);
    observer.observe(section, { childList: true, subtree: true });
  };
  update();
  narrow.addEventListener("change", update);
  return () => {
    observer.disconnect();
    narrow.removeEventListener("change", update);
  };
}

type ScrollProps = { label: string; className?: string | undefined; children: ReactNode };

/** A region that scrolls horizontally, also by keyboard. On a phone its tables are stacked instead: a block per row. */
export function Scroll({ label, className = "", children }: ScrollProps) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls must take the keyboard
    <section ref={labelWhileNarrow} className={`scroll ${className}`} aria-label={label} tabIndex={0}>
      {children}
    </section>
  );
}
