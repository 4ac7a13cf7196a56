import { useQuery } from "@tanstack/react-query";
import { useMemo, useSyncExternalStore } from "react";
import type { HeatShare } from "../cpuShares";
import type { NodeView } from "../nodeView";
import { heatQuery } from "../queries";
import type { LiveWindow } from "./liveWindow";
import { type Hottest, hottestOf, type Load, meanOfCells, type Shares } from "./load";

const UNKNOWN: Shares = new Uint8Array();

/** The live window's load: a new object every 5 s. */
export function useLiveLoad(window: LiveWindow): Load {
  return useSyncExternalStore(window.on, window.load);
}

/** Each CPU's mean share over the page's window, the last 5 s or the past range, and the CPU with the highest. */
export function useLoad(view: NodeView, share: HeatShare): { shares: Shares; hottest: Hottest | null } {
  const { node, past, window } = view;
  const live = useLiveLoad(window);
  const { data } = useQuery(heatQuery(node.id, share, past));
  return useMemo(() => {
    if (past === null) return { shares: live.shares[share], hottest: hottestOf(live.shares[share], live.tops[share]) };
    const shares = data === undefined ? UNKNOWN : meanOfCells(data);
    return { shares, hottest: hottestOf(shares) };
  }, [past, live, share, data]);
}
