import { memo } from "react";
import type { Band } from "../../charts/heatPainter";
import { formatCpuList } from "../../lib/cpulist";
import { formatCount } from "../../lib/format";
import type { Row } from "./coreRows";
import styles from "./cores.module.css";
import type { Chip } from "./irqChips";

/** Maximum number of chips beside a CPU's name. */
const CHIPS = 3;

/** Maximum length of a CPU list beside a group's name. */
const LIST = 16;

function briefly(cpus: number[]): string {
  const list = formatCpuList(cpus);
  return list.length <= LIST ? list : formatCount(cpus.length, "CPU");
}

type Props = {
  rows: Row[];
  bands: Band[];
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
  selected: number | null;
  selectedIrq: number | null;
  onToggle: (key: string) => void;
  onSelect: (sel: string) => void;
};

/** The row headers: foldable groups, and CPUs with the NIC interrupts that target them. */
export const CoreLabels = memo(
  function CoreLabels({ rows, bands, chips, isolated, selected, selectedIrq, onToggle, onSelect }: Props) {
    return (
      <div className={styles.labels}>
        {rows.map((row, index) => {
          const style = { height: bands[index]?.height, paddingLeft: 6 + 12 * row.depth };
          if (row.kind === "group")
            return (
              <div key={row.key} className={styles.group} style={style}>
                <button type="button" aria-expanded={!row.folded} tabIndex={-1} onClick={() => onToggle(row.key)}>
                  <span aria-hidden="true">{row.folded ? "▸" : "▾"}</span> {row.label}
                </button>
                {row.folded && (
                  <span className={styles.faintly} title={`Maximum of CPUs ${formatCpuList(row.cpus)}`}>
                    {briefly(row.cpus)}
                  </span>
                )}
              </div>
            );
          const here = chips.get(row.cpu) ?? [];
          const marks = here.some((chip) => chip.irq === selectedIrq);
          return (
            <div
              key={row.key}
              className={styles.cpu}
              style={style}
              data-selected={row.cpu === selected || undefined}
              data-marked={marks || undefined}
            >
              <button type="button" className="mono" tabIndex={-1} onClick={() => onSelect(`cpu:${row.cpu}`)}>
                CPU {row.cpu}
              </button>
              {isolated.has(row.cpu) && (
                <span className={styles.chip} title="Isolated by isolcpus or nohz_full">
                  isolated
                </span>
              )}
              {here.slice(0, CHIPS).map((chip) => (
                <button
                  key={chip.irq}
                  type="button"
                  tabIndex={-1}
                  className={styles.chip}
                  data-hot={chip.irq === selectedIrq || undefined}
                  title={chip.title}
                  onClick={() => onSelect(`irq:${chip.irq}`)}
                >
                  {chip.label}
                </button>
              ))}
              {here.length > CHIPS && (
                <span className={styles.chip} title={here.map((chip) => chip.title).join("\n")}>
                  +{here.length - CHIPS}
                </span>
              )}
            </div>
          );
        })}
      </div>
    );
  },
  (a, b) =>
    a.rows === b.rows &&
    a.chips === b.chips &&
    a.selected === b.selected &&
    a.selectedIrq === b.selectedIrq &&
    a.isolated === b.isolated,
);
