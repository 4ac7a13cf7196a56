/** Setting keys (`irq/41/affinity`) as people name them, and where on a node's page they are. */

/** `IRQ 41`, `task 812`, `eth0 rx-0 RPS`, `eth0 channels`; a key of no known kind stays as it is. */
export function settingName(key: string): string {
  const [kind, what, part, ...rest] = key.split("/");
  if (part === undefined) return key;
  if (kind === "irq") return `IRQ ${what}`;
  if (kind === "task") return `task ${what}`;
  if (kind !== "netdev") return key;
  const tunable = rest.at(-1) ?? part;
  const name = /^(rps|xps|rss)$/.test(tunable) ? tunable.toUpperCase() : tunable;
  return [what, ...(rest.length > 0 ? [part, ...rest.slice(0, -1)] : []), name].join(" ");
}

/** What the node page's panel shows of a setting: `irq:41`, `nic:eth0`; null where it has no panel. */
export function selectionOf(key: string): string | null {
  const [kind, what = ""] = key.split("/");
  return kind === "irq" ? `irq:${what}` : kind === "netdev" ? `nic:${what}` : null;
}
