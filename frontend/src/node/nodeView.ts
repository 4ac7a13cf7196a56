import { useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import type { Cursor } from "../charts/cursor";
import type { HeatBlock } from "../charts/heatBlock";
import type { Mark, Range } from "../charts/TimeOverlay";
import type { NodeSearch } from "./search";
import type { LiveWindow } from "./time/liveWindow";
import type { KeptFigures } from "./time/useKept";
import type { Change, Inventory, Topology } from "./types";

/** State shared by the parts of the node page. past: the shown past range; null in live mode. */
export type NodeView = {
  node: Schemas["Node"];
  topology: Topology;
  inventory: Inventory | null;
  search: NodeSearch;
  /** Sets parameters of the URL; a new range, span or selection adds an entry to the browser's history. */
  navigate: (change: Partial<NodeSearch>, options?: { replace?: boolean }) => void;
  window: LiveWindow;
  past: Range | null;
  /** The past range in the backend's clock, which changes and decisions are stored with; null in live mode. */
  stored: Range | null;
  /** The time of the shown live figures if they are stale: they keep their last value, gray. */
  staleSince: number | null;
  /** The figures of that time; null while they are not stale. */
  kept: KeptFigures | null;
  /** Heatmap cells of the past range; null in live mode and until loaded. */
  pastHeat: HeatBlock | null;
  /** The node's newest changes, independent of the shown range. */
  changes: Change[];
  /** Marks of the changes in the shown range. */
  marks: Mark[];
  /** Marks of policy decisions in the shown range that did not become changes. */
  policyMarks: Mark[];
  cursor: Cursor;
  zoom: (range: Range) => void;
  hold: (held: boolean) => void;
};

/** Rerenders the component with every live frame; returns the window's version. */
export function useFrames(window: LiveWindow): number {
  return useSyncExternalStore(window.on, window.version);
}

/** The shown heatmap cells: the live window's or the past range's. */
export function shownHeat(view: NodeView): HeatBlock | null {
  return view.past === null ? view.window.heat(view.search.share ?? "busy") : view.pastHeat;
}
