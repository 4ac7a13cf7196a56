import { formatCount, significant, UNKNOWN } from "../lib/format";
import type { Cell, CellSummary, Spec } from "./types";

/** A time in seconds, so that times can be compared at a glance: `12.3 s`, `0.840 s`. */
export const seconds = (value: number): string => `${significant(value)} s`;

/** A share of system time with one decimal, or more where it would be 0.0: `52.1 %`, `0.03 %`. */
export function shareText(share: number): string {
  const value = share * 100;
  return `${value === 0 || value >= 0.095 ? value.toFixed(1) : value.toPrecision(1)} %`;
}

/** A relative change with one decimal, as the paper prints it: `−12.3 %`, `+6.9 %`; a dash without one. */
export function changeText(change: number | null): string {
  if (change === null) return UNKNOWN;
  const size = Math.abs(change * 100).toFixed(1);
  return `${size === "0.0" ? "" : change < 0 ? "−" : "+"}${size} %`;
}

/** A 95 % interval of response times: `0.840 to 1.27 s`; a dash with one seed. */
export function intervalText({ low_s, high_s }: Pick<CellSummary, "low_s" | "high_s">): string {
  return low_s === null || high_s === null ? UNKNOWN : `${significant(low_s)} to ${seconds(high_s)}`;
}

/** In how many cells the sign of an effect holds: `holds in 3 of 4 cells`, `does not hold in its only cell`. */
export function holdsText({ holds, of }: { holds: number; of: number }): string {
  if (of === 1) return holds === 1 ? "holds in its only cell" : "does not hold in its only cell";
  return holds === of ? `holds in all ${of} cells` : `holds in ${holds === 0 ? "none" : holds} of ${of} cells`;
}

/** A cell's combination without its scheme: `NN SWL1, v 0.5`. */
export const placeText = ({ pattern, job_type, imbalance }: Cell): string =>
  `${pattern.toUpperCase()} ${job_type.toUpperCase()}, v ${imbalance}`;

const listed = (names: readonly string[], most: number): string =>
  names.length <= most ? names.join(", ") : `${names.length} schemes`;

/** What a study simulates: `SB, SB+RO · NN, AA · SWL1 · v 0.5 · 10 seeds · 200 generated jobs`. */
export function specText({ schemes, patterns, job_types, imbalances, seeds, parameters, trace, sensitivity }: Spec) {
  return [
    listed(schemes, 6),
    patterns.join(", ").toUpperCase(),
    job_types.join(", ").toUpperCase(),
    `v ${imbalances.join(", ")}`,
    formatCount(seeds, "seed"),
    `${formatCount(parameters.jobs, `job`)}, ${trace}`,
    ...(sensitivity ? ["sensitivity"] : []),
  ].join(" · ");
}

/** The name under which a file is stored: `NASA-iPSC-1993-3.1-cln.swf.gz` as it is, other characters as dashes. */
export const traceName = (file: string): string =>
  file
    .replace(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(-100) || "trace";
