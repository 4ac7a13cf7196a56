/** Setting keys (`irq/41/affinity`) as people name them, and where on a node's page they are. */

/**
 * `IRQ 41`, `task 812`, `task 812 nice`, `web/nginx cpu.weight`, `eth0 rx-0 RPS`, `eth0 rx-usecs`, `eth0 rx ring`; a key
 * of no known kind stays as it is.
 */
export function settingName(key: string): string {
  const [kind, what, part, ...rest] = key.split("/");
  if (part === undefined) return key;
  if (kind === "irq") return `IRQ ${what}`;
  if (kind === "task") return part === "affinity" ? `task ${what}` : `task ${what} ${part}`;
  if (kind === "cgroup") return key.replace(/^cgroup\/(.+)\/([^/]+)$/, "$1 $2");
  if (kind !== "netdev") return key;
  const queue = /^[rt]x-\d+$/.test(part) && rest.length > 0 ? [part] : [];
  return [what, ...queue, tunableName([part, ...rest].slice(queue.length).join("/"))].join(" ");
}

/** The end of a netdev's or queue's key as ethtool or sysfs spells it: `coalesce/rx-usecs` is rx-usecs. */
export function tunableName(end: string): string {
  const [, group, name = end] = end.match(/^(coalesce|ring)\/(.+)$/) ?? [];
  if (group === "ring") return `${name} ring`;
  return /^(rps|xps|rss)$/.test(name) ? name.toUpperCase() : name;
}

/** What the node page's panel shows of a setting: `irq:41`, `nic:eth0`; null where it has no panel. */
export function selectionOf(key: string): string | null {
  const [kind, what = ""] = key.split("/");
  return kind === "irq" ? `irq:${what}` : kind === "netdev" ? `nic:${what}` : null;
}
