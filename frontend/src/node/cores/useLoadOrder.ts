import { useEffect, useMemo, useState } from "react";
import { NO_DATA } from "../../charts/heatBlock";
import { pooled } from "../../charts/heatPainter";
import { heatOf, type NodeView } from "../nodeView";
import { type Row, rowsByLoad } from "./coreRows";

/** Lines do not change places more often than this. */
const RESORT_MS = 10_000;

/** The lines with the hottest first, by their maximum over the last moments or the past range; null when not asked for. */
export function useLoadOrder(view: NodeView, wanted: boolean): Row[] | null {
  const [turn, setTurn] = useState(0);
  const live = view.past === null;
  useEffect(() => {
    if (!wanted || !live) return;
    const timer = setInterval(() => setTurn((before) => before + 1), RESORT_MS);
    return () => clearInterval(timer);
  }, [wanted, live]);
  const block = heatOf(view);
  const fills = block?.fills;
  // biome-ignore lint/correctness/useExhaustiveDependencies: the block is written to in place; turn and fills tell when.
  return useMemo(() => {
    if (!wanted) return null;
    return rowsByLoad(view.topology, (cpu) => {
      if (block === null) return -1;
      const first = live ? block.last - Math.ceil(RESORT_MS / block.columnMs) : block.first;
      const value = pooled(block, [cpu], first, block.last);
      return value === NO_DATA ? -1 : value;
    });
  }, [view.topology, wanted, live, block, fills, turn]);
}
