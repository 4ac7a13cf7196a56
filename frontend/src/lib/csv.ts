/** CSV of charts: times in ISO 8601 with their zone, units in the header. */

type Value = string | number | null;

/** A cell; a text that a spreadsheet would take for a formula is marked as text. */
function cell(value: Value): string {
  if (value === null) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : value;
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Rows of cells as CSV; an unknown value is an empty cell. */
export const csv = (rows: Value[][]): string => `${rows.map((row) => row.map(cell).join(",")).join("\r\n")}\r\n`;

/** `received (B/s)`; a name without a unit as it is. */
export const withUnit = (name: string, unit: string): string => (unit === "" ? name : `${name} (${unit})`);

/** A time as text: `2026-11-22T08:12:40.000Z`. */
export const isoTime = (ms: number): string => new Date(ms).toISOString();

type Column = { key: string; name: string };

/** The lines of a chart as CSV, a row for each point that has a value. */
export function seriesCsv(points: ({ t: number } & Record<string, number | null>)[], lines: Column[], unit: string) {
  const rows = points
    .map((point) => [isoTime(point.t), ...lines.map(({ key }) => point[key] ?? null)])
    .filter(([, ...values]) => values.some((value) => value !== null));
  return csv([["time (UTC)", ...lines.map(({ name }) => withUnit(name, unit))], ...rows]);
}
