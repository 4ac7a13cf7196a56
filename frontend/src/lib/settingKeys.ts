/** Display names of setting keys (`irq/41/affinity`) and their panels on the node page. */

/**
 * The display name of a setting: `IRQ 41`, `task 812`, `task 812 nice`, `web/nginx cpu.weight`, `eth0 rx-0 RPS`,
 * `eth0 rx-usecs`, `eth0 rx ring`; the key itself for unknown kinds.
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

/** The ethtool or sysfs name of a netdev's tunable: `rx-usecs` for `coalesce/rx-usecs`. */
export function tunableName(end: string): string {
  const [, group, name = end] = end.match(/^(coalesce|ring)\/(.+)$/) ?? [];
  if (group === "ring") return `${name} ring`;
  return /^(rps|xps|rss)$/.test(name) ? name.toUpperCase() : name;
}

/** The node page's panel for a setting: `irq:41`, `nic:eth0`; null without one. */
export function selectionOf(key: string): string | null {
  const [kind, what = ""] = key.split("/");
  return kind === "irq" ? `irq:${what}` : kind === "netdev" ? `nic:${what}` : null;
}
