import type { Schemas } from "../../api/client";
import { settingName } from "../../lib/settingKeys";

/** A setting of a node. label: its name with its present value. */
export type KnownSetting = { key: string; label: string; value: string | null };

type Inventory = NonNullable<Schemas["Node"]["inventory"]>;

/** All settings of a node that an experiment can vary. */
export function knownSettings(inventory: Inventory | null | undefined): KnownSetting[] {
  if (!inventory) return [];
  const known: [key: string, value: string | null, more?: string][] = [];
  for (const netdev of inventory.netdevs) {
    const at = `netdev/${netdev.name}`;
    for (const [name, value] of Object.entries(netdev.params)) known.push([`${at}/${name}`, value]);
    if (netdev.rss !== null) known.push([`${at}/rss`, netdev.rss]);
    if (netdev.channels !== null) known.push([`${at}/channels`, netdev.channels]);
    for (const queue of netdev.queues) {
      if (queue.rps !== null) known.push([`${at}/${queue.name}/rps`, queue.rps]);
      if (queue.xps !== null) known.push([`${at}/${queue.name}/xps`, queue.xps]);
    }
  }
  for (const irq of inventory.irqs)
    if (irq.movable !== false) known.push([`irq/${irq.irq}/affinity`, irq.requested, irq.name]);
  known.push(...Object.entries(inventory.settings));
  return known.map(([key, value, more]) => {
    const name = [settingName(key), more].filter(Boolean).join(", ");
    return { key, value, label: value === null ? name : `${name}: now ${value === "" ? "no CPU" : value}` };
  });
}
