import { memo } from "react";
import { formatCpuList } from "../../lib/cpulist";
import type { Density, Row, RowBand } from "./coreRows";
import styles from "./cores.module.css";
import type { Chip } from "./irqChips";

type Props = {
  rows: Row[];
  bands: RowBand[];
  density: Density;
  chips: Map<number, Chip[]>;
  isolated: Set<number>;
  selectedIrq: number | null;
  onToggle: (group: number) => void;
  onSelect: (sel: string) => void;
};

/** The row headers: groups that fold, and CPUs with the NIC interrupts that target them. */
export const CoreLabels = memo(
  function CoreLabels({ rows, bands, density, chips, isolated, selectedIrq, onToggle, onSelect }: Props) {
    return (
      <div className={styles.labels}>
        {rows.map((row, index) => {
          const { top, height } = bands[index] ?? { top: 0, height: 0 };
          const style = { top, height: height - 1 };
          if (row.kind === "group")
            return (
              <button
                key={row.key}
                type="button"
                className={styles.group}
                style={style}
                data-phone={density.phone || undefined}
                aria-expanded={row.open}
                tabIndex={-1}
                title={`${row.open ? "Fold" : "Open"} ${row.label}: CPUs ${formatCpuList(row.cpus)}`}
                onClick={() => onToggle(row.group.id)}
              >
                <span aria-hidden="true">{row.open ? "▾" : "▸"}</span> {row.label}
                {density.phone && row.node !== null && <small> node {row.node}</small>}
                {row.open && !density.phone && row.group.detail !== "" && ` · ${row.group.detail}`}
              </button>
            );
          return (
            <div key={row.key} className={styles.cpu} style={style}>
              <button type="button" tabIndex={-1} onClick={() => onSelect(`cpu:${row.cpu}`)}>
                {row.cpu}
              </button>
              <Chips
                chips={chips.get(row.cpu) ?? []}
                most={density.chips}
                isolated={isolated.has(row.cpu)}
                selectedIrq={selectedIrq}
                onSelect={onSelect}
              />
            </div>
          );
        })}
      </div>
    );
  },
  (a, b) =>
    a.rows === b.rows &&
    a.bands === b.bands &&
    a.chips === b.chips &&
    a.selectedIrq === b.selectedIrq &&
    a.isolated === b.isolated,
);

type ChipsProps = {
  chips: Chip[];
  /** Most chips shown; the others are counted. */
  most: number;
  isolated: boolean;
  selectedIrq: number | null;
  onSelect: (sel: string) => void;
};

function Chips({ chips, most, isolated, selectedIrq, onSelect }: ChipsProps) {
  const shown = chips.slice(0, most);
  const hidden = chips.slice(most);
  return (
    <>
      {shown.map((chip) => (
        <button
          key={chip.netdev}
          type="button"
          tabIndex={-1}
          className={styles.chip}
          data-hot={(selectedIrq !== null && chip.irqs.includes(selectedIrq)) || undefined}
          title={chip.title}
          onClick={() => onSelect(`irq:${chip.irqs[0]}`)}
        >
          <span>{chip.netdev}</span>
          {chip.queues}
        </button>
      ))}
      {hidden.length > 0 && (
        <span className={styles.more} title={hidden.map((chip) => chip.title).join("\n")}>
          +{hidden.length}
        </span>
      )}
      {isolated && shown.length < most && (
        <span className={styles.chip} title="Isolated by isolcpus or nohz_full">
          isolated
        </span>
      )}
    </>
  );
}
