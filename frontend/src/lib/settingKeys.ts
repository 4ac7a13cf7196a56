/** Setting keys (`irq/41/affinity`) as people name them, from the registry of settings in the core. */

import settings from "../api/settings.json";

type Form = { pattern: string; subject: string; name: string; target: string | null };
type Schema = { type: string; format?: string; description?: string; "x-group"?: string; "x-unit"?: string };
type Name = { title: string; schema: Schema };

const FORMS = (settings.forms as Form[]).map((form) => ({ ...form, pattern: new RegExp(`^${form.pattern}$`) }));
const NAMES: Record<string, Name> = settings.names;

/** The form of a key with the groups of its pattern; null for a key of no kind. */
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

/** `IRQ 41`, `task 812 nice`, `eth0 rx-0 RPS`, `eth0 rx-usecs`; a key of no kind is returned unchanged. */
export function settingName(key: string): string {
  const found = parse(key);
  return found === null ? key : [found.subject, tunableName(found.name)].filter(Boolean).join(" ");
}

/** The end of a key as ethtool, sysfs or the kernel spells it: `coalesce/rx-usecs` is rx-usecs. */
export function tunableName(end: string): string {
  return NAMES[end]?.title ?? end;
}

/** Every tunable with its unit (null where it is no number), and its group and help in forms. */
export function tunables(): { name: string; unit: string | null; group: string | null; help: string }[] {
  return Object.entries(NAMES).map(([name, { schema }]) => ({
    name,
    unit: schema["x-unit"] ?? null,
    group: schema["x-group"] ?? null,
    help: schema.description ?? "",
  }));
}

/** The title of a key's value without whose it is; the key itself where it has none. */
export function tunableOf(key: string): string {
  const name = parse(key)?.name ?? key;
  return tunableName(name) || name;
}

/** Selection on the node's page that shows a setting: `irq:41`, `nic:eth0`; null where it has no panel. */
export function selectionOf(key: string): string | null {
  return parse(key)?.target ?? null;
}

/** Whether a setting's value is a CPU list. */
export function takesCpus(key: string): boolean {
  return NAMES[parse(key)?.name ?? ""]?.schema.format === "cpu-list";
}
