import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import type { Schemas } from "../../api/client";
import { type Point, pointsOf } from "../../charts/seriesRing";
import type { Kept } from "../../charts/TimeChart";
import { heatQuery, seriesQuery } from "../queries";
import type { LiveWindow } from "./liveWindow";
import { type Hottest, hottestOf, lastShares } from "./load";

/** Time before a node's last contact in which its last values are looked for, in ms. */
const LOOKED_BACK_MS = 120_000;

/** busiest, softirq: the CPUs with the highest shares then. */
export type KeptFigures = Kept & { busiest: Hottest | null; softirq: Hottest | null };

const isKnown = (point: Point) =>
  Object.entries(point).some(([key, value]) => key !== "t" && typeof value === "number");

/** The newest point with values as the values that stale lines keep; null without one. */
export function keptOf(points: Point[]): Kept | null {
  const last = points.findLast(isKnown);
  if (last === undefined) return null;
  const { t, ...values } = last;
  return { timeMs: t, values };
}

/** The figures of a node that is silent since a time: of the last frame, else of history before; null while it is not. */
export function useKept(node: Schemas["Node"], window: LiveWindow, staleSince: number | null): KeptFigures | null {
  const last = window.last;
  const before = useMemo(() => {
    if (staleSince === null || last !== undefined) return null;
    const to = Math.round(staleSince + (node.clock_skew_ms ?? 0)) + 1000;
    return { from: to - LOOKED_BACK_MS, to };
  }, [staleSince, last, node.clock_skew_ms]);
  const series = useQuery(seriesQuery(node.id, before)).data;
  const busy = useQuery(heatQuery(node.id, "busy", before)).data;
  const softirq = useQuery(heatQuery(node.id, "softirq", before)).data;
  return useMemo(() => {
    if (staleSince === null) return null;
    const newest = (share: "busy" | "softirq", block: typeof busy) =>
      hottestOf(last?.share(share) ?? lastShares(block) ?? new Uint8Array());
    const hottest = { busiest: newest("busy", busy), softirq: newest("softirq", softirq) };
    const values = last?.metrics ?? keptOf(series === undefined ? [] : pointsOf(series))?.values;
    return {
      timeMs: staleSince,
      values: { ...values, softirq_cpu_percent: hottest.softirq?.percent ?? null },
      ...hottest,
    };
  }, [staleSince, last, series, busy, softirq]);
}
