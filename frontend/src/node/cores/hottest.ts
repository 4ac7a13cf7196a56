import type { Group } from "./groups";

/** A CPU's load in units of 0.5 %, -1 if unknown. */
export type Levels = (cpu: number) => number;

/** CPUs from the highest load to the lowest, then by number. */
export function byLoad(cpus: readonly number[], levels: Levels): number[] {
  return cpus.toSorted((a, b) => levels(b) - levels(a) || a - b);
}

/** Groups, and the CPUs within them, from the highest load to the lowest. */
export function groupsByLoad(groups: Group[], levels: Levels): Group[] {
  return groups
    .map((group) => ({ ...group, cpus: byLoad(group.cpus, levels) }))
    .sort((a, b) => levels(b.cpus[0] ?? -1) - levels(a.cpus[0] ?? -1) || a.id - b.id);
}
