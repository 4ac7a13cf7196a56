import { useEffect, useMemo, useState } from "react";
import { NO_DATA } from "../../charts/heatBlock";
import { pooledMaximum } from "../../charts/heatPainter";
import { type NodeView, shownHeat } from "../nodeView";
import { type Row, rowsByLoad } from "./coreRows";

/** Minimum time between two sorts, in ms. */
const RESORT_MS = 10_000;

/** CPU rows sorted by their maximum over the last 10 s or the past range, highest first; null if disabled. */
export function useLoadOrder(view: NodeView, enabled: boolean): Row[] | null {
  const [round, setRound] = useState(0);
  const live = view.past === null;
  useEffect(() => {
    if (!enabled || !live) return;
    const timer = setInterval(() => setRound((before) => before + 1), RESORT_MS);
    return () => clearInterval(timer);
  }, [enabled, live]);
  const block = shownHeat(view);
  const fills = block?.fills;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the block is mutated in place; round and fills change with it.
  return useMemo(() => {
    if (!enabled) return null;
    return rowsByLoad(view.topology, (cpu) => {
      if (block === null) return -1;
      const first = live ? block.last - Math.ceil(RESORT_MS / block.columnMs) : block.first;
      const value = pooledMaximum(block, [cpu], first, block.last);
      return value === NO_DATA ? -1 : value;
    });
  }, [view.topology, enabled, live, block, fills, round]);
}
