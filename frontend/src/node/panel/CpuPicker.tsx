import { type MouseEvent, memo, useRef } from "react";
import { parseCpuList } from "../../lib/cpulist";
import type { Topology } from "../types";
import styles from "./panel.module.css";

type Props = {
  topology: Topology;
  isolated: Set<number>;
  chosen: ReadonlySet<number>;
  was: ReadonlySet<number>;
  onChange: (cpus: Set<number>) => void;
};

/** Toggle buttons for CPUs by NUMA node, siblings of a core adjacent. Shift-click selects a range. */
export const CpuPicker = memo(function CpuPicker({ topology, isolated, chosen, was, onChange }: Props) {
  const last = useRef<number | null>(null);
  const groups = groupsOf(topology);
  const order = groups.flatMap((group) => group.cpus);
  const click = (cpu: number, event: MouseEvent) => {
    const next = new Set(chosen);
    const from = last.current === null ? -1 : order.findIndex((other) => other.cpu === last.current);
    const to = order.findIndex((other) => other.cpu === cpu);
    if (event.shiftKey && from !== -1)
      for (const other of order.slice(Math.min(from, to), Math.max(from, to) + 1)) {
        if (other.online) next.add(other.cpu);
      }
    else if (!next.delete(cpu)) next.add(cpu);
    last.current = cpu;
    onChange(next);
  };
  return (
    <div className={styles.picker} data-many={order.length > 64 || undefined}>
      {groups.map((group) => (
        <fieldset key={group.label} aria-label={group.label}>
          <span className="muted">{group.label}</span>
          <div>
            {group.cpus.map((cpu) => (
              <button
                key={cpu.cpu}
                type="button"
                aria-pressed={chosen.has(cpu.cpu)}
                data-was={was.has(cpu.cpu) || undefined}
                data-isolated={isolated.has(cpu.cpu) || undefined}
                disabled={!cpu.online}
                title={titleOf(cpu, isolated)}
                onClick={(event) => click(cpu.cpu, event)}
              >
                {cpu.cpu}
              </button>
            ))}
          </div>
        </fieldset>
      ))}
    </div>
  );
});

function titleOf(cpu: Topology["cpus"][number], isolated: Set<number>): string {
  if (!cpu.online) return `CPU ${cpu.cpu} is offline`;
  const siblings = parseCpuList(cpu.siblings).filter((sibling) => sibling !== cpu.cpu);
  return [
    `CPU ${cpu.cpu}, core ${cpu.core ?? "?"}`,
    siblings.length > 0 ? `shared with CPU ${siblings.join(", ")}` : "",
    isolated.has(cpu.cpu) ? "isolated" : "",
  ]
    .filter((part) => part !== "")
    .join(", ");
}

/** CPUs grouped by NUMA node and sorted by core. */
function groupsOf(topology: Topology): { label: string; cpus: Topology["cpus"] }[] {
  const groups = new Map<number | null, Topology["cpus"]>();
  for (const cpu of topology.cpus) groups.set(cpu.numa_node, [...(groups.get(cpu.numa_node) ?? []), cpu]);
  return [...groups]
    .sort(([a], [b]) => (a ?? 1e9) - (b ?? 1e9))
    .map(([node, cpus]) => ({
      label: node === null ? "no NUMA node" : `node ${node}`,
      cpus: cpus.sort((a, b) => (a.core ?? 1e9) - (b.core ?? 1e9) || a.cpu - b.cpu),
    }));
}
