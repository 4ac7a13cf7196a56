import { useQuery } from "@tanstack/react-query";
import { useMemo, useState } from "react";
import { suggestionsQuery } from "../queries";
import type { NodeSearch } from "../search";
import { type HotSpot, type Option, pinnedSpot, shownSpot } from "./options";

/** What Suggested shows. chosen: the best option, and those of the others that the user added. */
export type ShownSpot = {
  spot: HotSpot | undefined;
  isOpen: boolean;
  chosen: Option[];
  add: (label: string, added: boolean) => void;
};

/** The hot CPU that Suggested and the map show; that of an open preview stays as it is while newer suggestions arrive. */
export function useShownSpot(nodeId: number, { hot: wanted, sel }: NodeSearch): ShownSpot {
  const { data } = useQuery(suggestionsQuery(nodeId));
  const latest = shownSpot(data?.suggestions.hot ?? [], wanted, sel);
  const [pinned, setPinned] = useState<HotSpot | undefined>(undefined);
  const [added, setAdded] = useState<{ cpu: number; labels: readonly string[] } | undefined>(undefined);
  const next = pinnedSpot(pinned, wanted, latest);
  if (next !== pinned) setPinned(next);
  const spot = next ?? latest;
  const labels = added?.cpu === spot?.cpu ? added?.labels : undefined;
  const chosen = useMemo(
    () => (spot?.options ?? []).filter(({ label }, index) => index === 0 || labels?.includes(label)),
    [spot, labels],
  );
  const add = (label: string, isAdded: boolean) => {
    const others = labels?.filter((other) => other !== label) ?? [];
    if (spot !== undefined) setAdded({ cpu: spot.cpu, labels: isAdded ? [...others, label] : others });
  };
  return { spot, isOpen: next !== undefined, chosen, add };
}
