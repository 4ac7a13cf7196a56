/** The load that figures, heatmap and Why state: one window and one hottest CPU for all of them. */

import { type HeatBlock, NO_DATA } from "../../charts/heatBlock";
import type { RatesFrame } from "../../live/frames";
import { HEAT_SHARES, type HeatShare } from "../cpuShares";

/** Period over which the page averages, and after which it states the mean of the next one, in ms. */
export const RECENT_MS = 5000;

/** Units of a share in a percent. */
const PER_PERCENT = 2;

/** A share by CPU number in units of 0.5 %, NO_DATA where unknown. */
export type Shares = Uint8Array;
export type Hottest = { cpu: number; percent: number };

/** behindSinceMs: since when another CPU is hotter; null while none is. */
type Top = { cpu: number; behindSinceMs: number | null };

/** Means over the same frames. frames: none where the shares are from history. */
export type Load = {
  timeMs: number;
  frames: readonly RatesFrame[];
  shares: Record<HeatShare, Shares>;
  tops: Record<HeatShare, Top | null>;
};

const ofEachShare = <T>(of: (share: HeatShare) => T) =>
  Object.fromEntries(HEAT_SHARES.map((share) => [share, of(share)])) as Record<HeatShare, T>;

export const NO_LOAD: Load = {
  timeMs: 0,
  frames: [],
  shares: ofEachShare(() => new Uint8Array()),
  tops: ofEachShare(() => null),
};

/** Points, in units of 0.5 %, by which another CPU must be hotter to be the hottest at once, and the time after which any hotter one is. */
const CLEARLY_HOTTER = 5 * PER_PERCENT;
const PATIENCE_MS = 2 * RECENT_MS;

const levelOf = (shares: Shares, cpu: number) => {
  const share = shares[cpu] ?? NO_DATA;
  return share === NO_DATA ? -1 : share;
};

/** The hottest CPU: the previous one until another is hotter by 5 points, or others have been hotter for 10 s. */
export function topOf(shares: Shares, previous: Top | null, nowMs: number): Top | null {
  let top = 0;
  for (let cpu = 1; cpu < shares.length; cpu++) if (levelOf(shares, cpu) > levelOf(shares, top)) top = cpu;
  const most = levelOf(shares, top);
  if (most < 0) return null;
  const before = previous === null ? -1 : levelOf(shares, previous.cpu);
  if (previous === null || before < 0 || most >= before + CLEARLY_HOTTER) return { cpu: top, behindSinceMs: null };
  if (most === before) return { cpu: previous.cpu, behindSinceMs: null };
  const behindSinceMs = previous.behindSinceMs ?? nowMs;
  return nowMs - behindSinceMs >= PATIENCE_MS
    ? { cpu: top, behindSinceMs: null }
    : { cpu: previous.cpu, behindSinceMs };
}

/** The hottest CPU of shares with its load; null where none is known. */
export function hottestOf(shares: Shares, top: Top | null = topOf(shares, null, 0)): Hottest | null {
  return top === null ? null : { cpu: top.cpu, percent: levelOf(shares, top.cpu) / PER_PERCENT };
}

/** The mean of a share over frames, each CPU unknown where it is in one of them. */
export function meanShares(frames: readonly RatesFrame[], share: string): Shares {
  const columns = frames.map((frame) => frame.share(share));
  const cpus = Math.max(0, ...frames.map((frame) => frame.cpus));
  return Uint8Array.from({ length: cpus }, (_, cpu) => {
    let sum = 0;
    for (const column of columns) {
      const value = column?.[cpu] ?? NO_DATA;
      if (value === NO_DATA) return NO_DATA;
      sum += value;
    }
    return Math.round(sum / columns.length);
  });
}

/** The mean of each CPU's cells with data, unknown without any. */
export function meanOfCells({ rows, columns, cells }: Pick<HeatBlock, "rows" | "columns" | "cells">): Shares {
  return Uint8Array.from({ length: rows }, (_, row) => {
    let [sum, known] = [0, 0];
    for (const cell of cells.subarray(row * columns, (row + 1) * columns))
      if (cell !== NO_DATA) {
        sum += cell;
        known += 1;
      }
    return known === 0 ? NO_DATA : Math.round(sum / known);
  });
}

/** The newest known cells of a block; none without any. */
export function lastShares(block: HeatBlock | undefined): Shares | null {
  if (block === undefined) return null;
  for (let column = block.last; column >= block.first; column--) {
    const slot = block.slot(column);
    const shares = Uint8Array.from(
      { length: block.rows },
      (_, row) => block.cells[row * block.columns + slot] ?? NO_DATA,
    );
    if (shares.some((share) => share !== NO_DATA)) return shares;
  }
  return null;
}

/** Shares in percent, null where unknown. */
export const percents = (shares: Shares): (number | null)[] =>
  Array.from(shares, (share) => (share === NO_DATA ? null : share / PER_PERCENT));

/** The load of frames; the hottest CPUs follow from the load before. */
export function loadOf(frames: readonly RatesFrame[], before: Load): Load {
  const timeMs = frames.at(-1)?.time_ms ?? 0;
  const shares = ofEachShare((share) => meanShares(frames, share));
  return { timeMs, frames, shares, tops: ofEachShare((share) => topOf(shares[share], before.tops[share], timeMs)) };
}

/** A load without frames, with a share from history. */
export function withHistory(load: Load, share: HeatShare, shares: Shares): Load {
  return {
    ...load,
    shares: { ...load.shares, [share]: shares },
    tops: { ...load.tops, [share]: topOf(shares, null, 0) },
  };
}
