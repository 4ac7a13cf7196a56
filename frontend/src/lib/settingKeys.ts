/** Readable names of setting keys such as `irq/41/affinity`, from the core's registry of settings. */

import settings from "../api/settings.json";

type Form = { pattern: string; subject: string; name: string; target: string | null };
type Schema = { type: string; format?: string; description?: string; "x-group"?: string; "x-unit"?: string };
type Name = { title: string; schema: Schema };

const FORMS = (settings.forms as Form[]).map((form) => ({ ...form, pattern: new RegExp(`^${form.pattern}$`) }));
const NAMES: Record<string, Name> = settings.names;

/** A key's subject, tunable and panel by the registry; null for an unknown kind of key. */
function parse(key: string) {
  for (const form of FORMS) {
    const match = form.pattern.exec(key);
    if (match !== null) {
      const fill = (template: string) => template.replace(/\$(\d)/g, (_, group) => match[Number(group)] ?? "");
      return { subject: fill(form.subject), name: fill(form.name), target: form.target && fill(form.target) };
    }
  }
  return null;
}

/** `IRQ 41`, `task 812 nice`, `eth0 rx-0 RPS`, `eth0 rx-usecs`; an unknown kind of key is returned unchanged. */
export function settingName(key: string): string {
  const found = parse(key);
  return found === null ? key : [found.subject, tunableName(found.name)].filter(Boolean).join(" ");
}

/** A tunable's name in ethtool, sysfs or the kernel: `rx-usecs` for `coalesce/rx-usecs`. */
export function tunableName(end: string): string {
  return NAMES[end]?.title ?? end;
}

/** Every tunable with its unit (null unless it is a number, empty for one without a unit), and its group and help text in forms. */
export function tunables(): { name: string; unit: string | null; group: string | null; help: string }[] {
  return Object.entries(NAMES).map(([name, { schema }]) => ({
    name,
    unit: schema["x-unit"] ?? (schema.type === "integer" ? "" : null),
    group: schema["x-group"] ?? null,
    help: schema.description ?? "",
  }));
}

/** The tunable that a key names, without its subject: `rx-usecs` for `netdev/eth0/coalesce/rx-usecs`. */
export function tunableOf(key: string): string {
  const name = parse(key)?.name ?? key;
  return tunableName(name) || name;
}

/** The URL selection whose side panel on the node page shows a setting: `irq:41`, `nic:eth0`, `task:812`; null without a panel. */
export function panelSelection(key: string): string | null {
  return parse(key)?.target ?? null;
}

/** Whether a setting's value is a CPU list. */
export function isCpuListSetting(key: string): boolean {
  return NAMES[parse(key)?.name ?? ""]?.schema.format === "cpu-list";
}

/** A setting's value for display: pages by NUMA node, `0=9300;1=700`, as `93 % on node 0, 7 % on node 1`. */
export function settingValue(key: string, value: string): string {
  if (parse(key)?.name !== "memory-nodes" || !value.includes("=")) return value;
  const pages = value.split(";").map((part) => part.split("=").map(Number) as [node: number, count: number]);
  const total = pages.reduce((sum, [, count]) => sum + count, 0) || 1;
  return pages
    .filter(([, count]) => count > 0)
    .map(([node, count]) => `${Math.round((100 * count) / total)} % on node ${node}`)
    .join(", ");
}
