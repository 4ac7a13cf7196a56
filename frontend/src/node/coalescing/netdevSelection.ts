import type { NodeSearch } from "../search";
import type { Inventory, Netdev } from "../types";

/** The network devices except lo, hardware first. */
export function netdevsOf(inventory: Inventory | null): Netdev[] {
  const netdevs = (inventory?.netdevs ?? []).filter(({ name }) => name !== "lo");
  return [...netdevs.filter(({ virtual }) => !virtual), ...netdevs.filter(({ virtual }) => virtual)];
}

/** The selected device: the panel's, else the URL's, else the first with rx-usecs; null without devices. */
export function selectedNetdev(inventory: Inventory | null, { sel, nic }: NodeSearch): Netdev | null {
  const netdevs = netdevsOf(inventory);
  const selected = sel?.startsWith("nic:") ? sel.slice(4) : nic;
  return (
    netdevs.find(({ name }) => name === selected) ??
    netdevs.find(({ params }) => "coalesce/rx-usecs" in params) ??
    netdevs[0] ??
    null
  );
}
