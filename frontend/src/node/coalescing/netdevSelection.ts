import type { NodeSearch } from "../search";
import type { Inventory, Netdev } from "../types";

/** The network devices that can be looked at, hardware first. */
export function netdevsOf(inventory: Inventory | null): Netdev[] {
  const netdevs = (inventory?.netdevs ?? []).filter(({ name }) => name !== "lo");
  return [...netdevs.filter(({ virtual }) => !virtual), ...netdevs.filter(({ virtual }) => virtual)];
}

/** The one in sight: the panel's, else the URL's, else the first that can be told to wait; null where there is none. */
export function selectedNetdev(inventory: Inventory | null, { sel, nic }: NodeSearch): Netdev | null {
  const netdevs = netdevsOf(inventory);
  const asked = sel?.startsWith("nic:") ? sel.slice(4) : nic;
  return (
    netdevs.find(({ name }) => name === asked) ??
    netdevs.find(({ params }) => "coalesce/rx-usecs" in params) ??
    netdevs[0] ??
    null
  );
}
