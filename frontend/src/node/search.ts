/** The node page's part of the URL: what is looked at and what is selected. */
export type NodeSearch = {
  /** The time range in Unix milliseconds; absent while the page follows the present. */
  from?: number;
  to?: number;
  /** What the side panel shows, for example `irq:41` or `cpu:3`. */
  sel?: string;
};

/** Search parameters arrive as strings; what does not fit is left out. */
export function validateNodeSearch(search: Record<string, unknown>): NodeSearch {
  const time = (value: unknown) => (Number.isFinite(Number(value ?? "")) && value ? Number(value) : undefined);
  return {
    from: time(search.from),
    to: time(search.to),
    sel: typeof search.sel === "string" ? search.sel : undefined,
  };
}
