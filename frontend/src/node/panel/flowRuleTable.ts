/** Slots of a network device's table of flow rules. */

import type { Netdev } from "../types";

export type FlowRuleTable = NonNullable<Netdev["flow_rules"]>;

/** The highest free slot, so that present rules keep their precedence; null if the table is full or not fully known. */
export function freeSlot({ size, rules, complete }: FlowRuleTable): number | null {
  const used = new Set(rules.map(({ location }) => location));
  let slot = size - 1;
  while (used.has(slot)) slot -= 1;
  return complete && slot >= 0 ? slot : null;
}
