import { useSyncExternalStore } from "react";
import type { Schemas } from "../api/client";
import type { Cursor } from "../charts/cursor";
import type { HeatBlock } from "../charts/heatBlock";
import type { Mark, Range } from "../charts/TimeOverlay";
import type { NodeSearch } from "./search";
import type { LiveWindow } from "./time/liveWindow";
import type { Change, Inventory, Topology } from "./types";

/** What the parts of the node page share. past: the range looked at; null while following the present. */
export type NodeView = {
  node: Schemas["Node"];
  topology: Topology;
  inventory: Inventory | null;
  search: NodeSearch;
  /** Changes some of the URL's parameters; a new range makes a step in the browser's history. */
  navigate: (change: Partial<NodeSearch>) => void;
  window: LiveWindow;
  past: Range | null;
  /** A past range's cells, null until they are there. */
  pastHeat: HeatBlock | null;
  /** The node's newest changes, also while a past range is in sight. */
  changes: Change[];
  /** The changes in sight. */
  marks: Mark[];
  /** What policies decided in sight without changing anything. */
  decided: Mark[];
  cursor: Cursor;
  zoom: (range: Range) => void;
  hold: (held: boolean) => void;
};

/** Renders anew with every live frame. */
export function useFrames(window: LiveWindow): number {
  return useSyncExternalStore(window.on, window.version);
}

/** The cells that are shown: the live window's or the past range's. */
export function heatOf(view: NodeView): HeatBlock | null {
  return view.past === null ? view.window.heat : view.pastHeat;
}
