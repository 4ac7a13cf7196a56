import { useIsFetching, useQueryClient } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import styles from "./tabs.module.css";

type TabOf<T> = { value: T; label: string; count?: number };
type Props<T> = { label: string; value: T; tabs: readonly TabOf<T>[]; linked?: boolean };

/**
 * Tabs of a page, each a link that sets `tab` in the URL. count: of what the tab lists. linked: the page was opened by a
 * link to the tab, which is scrolled into view once the page has its data, unless the user has scrolled meanwhile.
 */
export function Tabs<T extends string>({ label, value, tabs, linked = false }: Props<T>) {
  const frame = useRef<HTMLElement>(null);
  const isDue = useRef(linked);
  const queries = useQueryClient();
  const fetching = useIsFetching();
  useEffect(() => {
    if (!isDue.current || fetching > 0) return;
    // in the next frame, as the tab has not begun to load in the first one
    const request = requestAnimationFrame(() => {
      if (queries.isFetching() > 0) return;
      isDue.current = false;
      if (window.scrollY === 0) frame.current?.scrollIntoView();
    });
    return () => cancelAnimationFrame(request);
  }, [fetching, queries]);
  return (
    <nav ref={frame} className={styles.tabs} aria-label={label}>
      {tabs.map((tab) => (
        <Link
          key={tab.value}
          to="."
          search={(before: object) => ({ ...before, tab: tab.value }) as never}
          resetScroll={false}
          aria-current={tab.value === value ? "page" : undefined}
        >
          {tab.label} {tab.count !== undefined && <small>{tab.count}</small>}
        </Link>
      ))}
    </nav>
  );
}
