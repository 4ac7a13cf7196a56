import { formatFigure, linkSpeed, micros, percent, perSecond, significant, UNKNOWN } from "../lib/format";
import type { Interval } from "./types";

/** A figure with its unit: `9.41 Gbit/s`, `118 µs`, `0.0031 s/Gbit`. */
export function figureText(value: number | null | undefined, unit: string): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return UNKNOWN;
  if (unit === "bit/s") return formatFigure(linkSpeed(value));
  if (unit === "1/s") return formatFigure(perSecond(value));
  if (unit === "µs") return formatFigure(micros(value));
  if (unit === "% of one CPU") return `${significant(value)} %`;
  if (unit === "%") return formatFigure(percent(value));
  const plain = value !== 0 && Math.abs(value) < 0.1 ? value.toPrecision(3) : significant(value);
  return unit === "" ? plain : `${plain} ${unit}`;
}

const signed = (share: number) => {
  const value = share * 100;
  if (value === 0) return "0";
  const size = Math.abs(value);
  const digits = size >= 9.95 ? 0 : size >= 0.095 ? 1 : 2;
  const shown = size.toFixed(digits);
  return `${Number(shown) === 0 ? "" : value < 0 ? "−" : "+"}${shown}`;
};

/** A relative difference: `+10 %`, `−1.2 %`. */
export function effectText(share: number | null | undefined): string {
  return share === null || share === undefined ? UNKNOWN : `${signed(share)} %`;
}

/** A relative difference with its interval: `+10 % (+8.1 to +12 %)`. */
export function effectWithInterval(effect: Interval | null): string {
  if (effect === null) return UNKNOWN;
  return `${effectText(effect.value)} (${signed(effect.low)} to ${signed(effect.high)} %)`;
}

/** The minimum detectable difference, rounded up like in the findings: `2.1 %`. */
export function detectableText(share: number | null): string {
  if (share === null) return UNKNOWN;
  const digits = share >= 1 ? 0 : share >= 0.00095 || share === 0 ? 1 : 2;
  const scale = 10 ** digits;
  return `${(Math.ceil(share * 100 * scale - 1e-9) / scale).toFixed(digits)} %`;
}

/** A p-value as papers write it. */
export function pText(p: number | null): string {
  return p === null ? UNKNOWN : p < 0.001 ? "< 0.001" : p.toFixed(3);
}
