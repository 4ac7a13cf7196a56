import type { Interval } from "../types";

/** Maps values to positions between 0 and 1. */
export type Scale = { low: number; high: number; at: (value: number) => number; ticks: number[] };

/** A scale that covers values with a margin and two to five round ticks. */
export function scaleOver(values: number[], { zero = false } = {}): Scale {
  const known = values.filter(Number.isFinite);
  if (zero) known.push(0);
  let low = known.length === 0 ? 0 : Math.min(...known);
  let high = known.length === 0 ? 1 : Math.max(...known);
  const room = (high - low || Math.abs(high) || 1) * 0.06;
  low = zero && low === 0 ? 0 : low - room;
  high = high + room;
  const step = roundStep((high - low) / 4);
  const ticks: number[] = [];
  for (let place = Math.ceil(low / step); place * step <= high; place++) ticks.push(place * step || 0);
  return { low, high, at: (value) => (value - low) / (high - low), ticks };
}

const EFFECT_LIMITS = [0.05, 0.1, 0.2, 0.5, 1];

/** One scale around 0 for the effects of a table: the narrowest round one with all estimates, at most ±100 %. */
export function effectScale(effects: (Interval | null)[]): Scale {
  const largest = Math.max(0, ...effects.map((effect) => Math.abs(effect?.value ?? 0)));
  const limit = EFFECT_LIMITS.find((one) => largest <= one) ?? 1;
  return { low: -limit, high: limit, at: (value) => (value + limit) / (2 * limit), ticks: [-limit, 0, limit] };
}

function roundStep(value: number): number {
  const power = 10 ** Math.floor(Math.log10(value));
  return ([1, 2, 5, 10].find((step) => step * power >= value * 0.999) ?? 10) * power;
}

export const intervalEnds = (interval: Interval | null): number[] =>
  interval === null ? [] : [interval.low, interval.value, interval.high];
