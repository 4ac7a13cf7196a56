import { useMediaQuery } from "@mantine/hooks";
import { useMemo, useRef } from "react";
import { ExportMenu } from "../../components/ExportMenu";
import { Segments } from "../../components/Segments";
import { CIVIDIS_GRADIENT } from "../../lib/cividis";
import { formatCpuList } from "../../lib/cpulist";
import { formatCount } from "../../lib/format";
import { HEAT_SHARES, type HeatShare } from "../cpuShares";
import nodeStyles from "../node.module.css";
import { type NodeView, shownHeat } from "../nodeView";
import { targetsOf } from "../suggested/options";
import type { ShownSpot } from "../suggested/useShownSpot";
import { isolatedCpus } from "../topology";
import { CoresTable } from "./CoresTable";
import styles from "./cores.module.css";
import { FOLD_FROM } from "./groups";
import { Heatmap } from "./Heatmap";
import { heatCsv } from "./heatCsv";
import { byLoad } from "./hottest";
import { chipsByCpu } from "./irqChips";
import { type Columns, useColumns } from "./useColumns";
import { useLevels } from "./useLevels";

/** Definition of each share, for tooltips. */
const MEANING: Record<HeatShare, string> = {
  busy: "everything but idle and waiting for I/O",
  softirq: "softirq work: the network stack's receive and send side, timers",
  irq: "interrupt handlers. Without CONFIG_IRQ_TIME_ACCOUNTING the kernel counts this by ticks, so it may read 0",
  user: "user processes",
};

/** The CPU × time heatmap with the topology as row headers, or its table. */
export function Cores({ view, shown: { spot, chosen } }: { view: NodeView; shown: ShownSpot }) {
  const { topology, inventory, search, navigate } = view;
  const share = search.share ?? "busy";
  const box = useRef<HTMLDivElement>(null);
  const phone = useMediaQuery("(max-width: 599px)", undefined, { getInitialValueInEffect: false });
  const order = useLevels(view, share, box);
  const columns = useColumns(view, order, phone);
  const chips = useMemo(() => chipsByCpu(inventory), [inventory]);
  const isolated = useMemo(() => isolatedCpus(topology), [topology]);
  const targets = useMemo(() => targetsOf(spot?.cpu, chosen), [spot, chosen]);
  const table = search.table === "cores";
  const cpus = columns.groups.flatMap((group) => group.cpus);
  const offline = topology.cpus.filter((cpu) => !cpu.online).map(({ cpu }) => cpu);
  return (
    <section className="card" aria-labelledby="cores-heading">
      <h2 className={`${nodeStyles.wrap} ${styles.head}`}>
        <span id="cores-heading">CPUs</span>
        <small title={MEANING[share]}>
          {phone ? `hottest first · ${cpus.length}` : `${share} share, max per pixel`}
        </small>
        <span className="grow" />
        <Segments
          label="Share shown"
          value={share}
          options={HEAT_SHARES.map((value) => ({ value, label: value, title: MEANING[value] }))}
          onChange={(value) => navigate({ share: value === "busy" ? undefined : value })}
        />
        {!phone && (
          <Segments
            label="Row order"
            value={search.order ?? "structure"}
            options={[
              { value: "structure", label: "by structure" },
              { value: "load", label: "hottest first" },
            ]}
            onChange={(value) => navigate({ order: value === "load" ? "load" : undefined })}
          />
        )}
        <small className={styles.legend} title="Each pixel is the maximum of its time. Hatched: no data.">
          0 <i style={{ background: CIVIDIS_GRADIENT }} /> 100 %
        </small>
        <ExportMenu
          name={`${view.node.name} CPUs ${share}`}
          range={() => view.past ?? view.window.range()}
          csv={() =>
            heatCsv(
              shownHeat(view),
              cpus.toSorted((a, b) => a - b),
              share,
            )
          }
        />
        <button
          type="button"
          className="link"
          onClick={() => navigate({ table: table ? undefined : "cores" })}
          aria-pressed={table}
        >
          {table ? "as chart" : "as table"}
        </button>
      </h2>
      {table ? (
        <CoresTable
          view={view}
          cpus={[...(search.order === "load" ? byLoad(cpus, order.levels) : cpus), ...offline]}
          chips={chips}
          isolated={isolated}
        />
      ) : (
        <>
          <Heatmap view={view} columns={columns} chips={chips} isolated={isolated} targets={targets} box={box} />
          <Below columns={columns} cpus={cpus.length} listed={search.order === "load"} offline={offline} />
        </>
      )}
    </section>
  );
}

type BelowProps = { columns: Columns; cpus: number; listed: boolean; offline: number[] };

/** What the heatmap leaves out, and controls to show it. */
function Below({ columns, cpus, listed, offline }: BelowProps) {
  const { open, groups, openAll, hidden, showHidden } = columns;
  const folds = cpus >= FOLD_FROM && !listed;
  if (!folds && hidden === 0 && offline.length === 0) return null;
  const opened = open.size > 1;
  return (
    <p className={styles.below}>
      {folds && (
        <button type="button" className="link" onClick={() => openAll(!opened)}>
          {opened ? "fold all" : `open all ${groups.length} groups`}
        </button>
      )}
      {hidden > 0 && (
        <button type="button" className="link" onClick={showHidden}>
          also list the {formatCount(hidden, "cooler CPU")}
        </button>
      )}
      {offline.length > 0 && (
        <span>
          {formatCount(offline.length, "CPU")} offline: {formatCpuList(offline)}
        </span>
      )}
    </p>
  );
}
