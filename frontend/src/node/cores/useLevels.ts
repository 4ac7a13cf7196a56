import { type RefObject, useRef } from "react";
import { NO_DATA } from "../../charts/heatBlock";
import type { HeatShare } from "../cpuShares";
import type { NodeView } from "../nodeView";
import type { Shares } from "../time/load";
import { useLoad } from "../time/useLoad";
import type { Levels } from "./hottest";

/** By which rows are sorted, and the CPU whose group is open. */
export type Order = { levels: Levels; hottest: number | null };

const orderOf = (shares: Shares, hottest: number | null): Order => ({
  levels: (cpu) => {
    const share = shares[cpu] ?? NO_DATA;
    return share === NO_DATA ? -1 : share;
  },
  hottest,
});

/** While this holds, rows do not move away under a pointer, a finger or the keyboard. */
const isInUse = (element: HTMLElement | null) =>
  element?.matches(":has(:focus-visible), :focus-visible, :active") === true ||
  (element?.matches(":hover") === true && matchMedia("(hover: hover)").matches);

/** The order by the shares that the heatmap states; while it is in use, by those before. */
export function useLevels(view: NodeView, share: HeatShare, element: RefObject<HTMLElement | null>): Order {
  const load = useLoad(view, share);
  const hottest = load.hottest?.cpu ?? null;
  const kept = useRef({ load, of: { share, past: view.past }, order: orderOf(load.shares, hottest) });
  const { of, order } = kept.current;
  const isOther = of.share !== share || of.past !== view.past;
  // A share just chosen has no data yet: the order stays until it has.
  const isKnown = hottest !== null || order.hottest === null;
  if (kept.current.load !== load && isKnown && (isOther || order.hottest === null || !isInUse(element.current)))
    kept.current = { load, of: { share, past: view.past }, order: orderOf(load.shares, hottest) };
  return kept.current.order;
}
