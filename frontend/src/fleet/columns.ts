/** The columns of the table of nodes, beside the nodes' names: which are shown. */

export const COLUMNS = [
  "health",
  "cpus",
  "busiest",
  "softirq",
  "rx",
  "tx",
  "interrupts",
  "dropped",
  "squeezed",
  "rtt",
  "wrong-node",
  "kernel",
  "drivers",
  "labels",
] as const;
export type Column = (typeof COLUMNS)[number];

/** Whether a text is a list of columns: `busiest,rx`. */
export const isColumns = (text: string): boolean =>
  text.split(",").every((name) => COLUMNS.some((one) => one === name));

/** The columns of the address, in the table's order; without any those that fit 1440 pixels. */
export const shownColumns = (columns: string | undefined): Column[] =>
  COLUMNS.filter((name) => (columns === undefined ? name !== "wrong-node" : columns.split(",").includes(name)));

/** The address's columns after one is shown or hidden; undefined for the usual ones, and the last one cannot be hidden. */
export function toggleColumn(columns: string | undefined, column: Column): string | undefined {
  const before = shownColumns(columns);
  const after = COLUMNS.filter((name) => before.includes(name) !== (name === column));
  const text = (after.length === 0 ? before : after).join(",");
  return text === shownColumns(undefined).join(",") ? undefined : text;
}
