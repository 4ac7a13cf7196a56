import { duration } from "../lib/format";
import type { Alert, Rule } from "./queries";

const number = (value: number) => value.toLocaleString("en", { maximumSignificantDigits: 3 });

/** `90 %`, `1/s`, `3`. */
const withUnit = (value: number, unit: string) =>
  unit.startsWith("1/") ? number(value) + unit.slice(1) : [number(value), unit].filter(Boolean).join(" ");

/** The value of an alert with its unit; empty for a condition and for a count, whose rule says what it is. */
export function valueText({ value, unit }: Pick<Alert, "value" | "unit">): string {
  if (value === null || unit === "") return value === null || value === 1 ? "" : number(value);
  return withUnit(value, unit);
}

/** When a rule fires and when its alerts are resolved, in a sentence. */
export function ruleText({ threshold, clear, for_s, keep_s, unit }: Rule): string {
  const of = (value: number) => withUnit(value, unit);
  const held = (seconds: number) => (seconds === 0 ? "" : ` for ${duration(seconds)}`);
  return `fires at ${of(threshold)}${held(for_s)}; resolved below ${of(clear)}${held(keep_s)}`;
}

/** Parses patterns that silence alerts; values in double quotes may have spaces. Returns a message if one is invalid. */
export function parsePatterns(line: string): Record<string, string> | string {
  const labels: Record<string, string> = {};
  for (const [part, name, quoted, plain] of line.matchAll(/([^\s=]+)=(?:"([^"]*)"|(\S*))|\S+/g)) {
    const value = quoted ?? plain;
    if (name === undefined || !value) return `“${part}” has no value; write it as name=value or name="some value".`;
    labels[name] = value;
  }
  return Object.keys(labels).length === 0 ? "Write at least one pattern, such as node=web-*." : labels;
}

const literal = (text: string) => text.replace(/[[*?]/g, "[$&]").replaceAll('"', "?");

/** The patterns that silence one alert. */
export const patternsOf = ({ rule, name }: Pick<Alert, "rule" | "name">): string =>
  `rule="${literal(rule)}" node="${literal(name)}"`;
