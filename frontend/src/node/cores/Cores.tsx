import { useMemo, useState } from "react";
import { Segments } from "../../components/Segments";
import { CIVIDIS_GRADIENT } from "../../lib/cividis";
import { HEAT_SHARES, type HeatShare } from "../cpuShares";
import styles from "../node.module.css";
import type { NodeView } from "../nodeView";
import { isolatedCpus } from "../topology";
import { CoresTable } from "./CoresTable";
import { initiallyFolded, innermostGroups, type Row, rowsByStructure } from "./coreRows";
import { Heatmap } from "./Heatmap";
import { chipsByCpu } from "./irqChips";
import { useLoadOrder } from "./useLoadOrder";

/** Definition of each share, for tooltips. */
const MEANING: Record<HeatShare, string> = {
  busy: "everything but idle and waiting for I/O",
  softirq: "softirq work: the network stack's receive and send side, timers",
  irq: "interrupt handlers. Without CONFIG_IRQ_TIME_ACCOUNTING the kernel counts this by ticks, so it may read 0",
  user: "user processes",
};

/** The CPU × time heatmap with the topology as row headers, or its table. */
export function Cores({ view }: { view: NodeView }) {
  const { topology, inventory, search, navigate } = view;
  const share = search.share ?? "busy";
  const [folded, setFolded] = useState(() => initiallyFolded(topology));
  const byLoad = useLoadOrder(view, search.order === "load");
  const structure = useMemo(() => rowsByStructure(topology, folded), [topology, folded]);
  const rows: Row[] = byLoad ?? structure;
  const chips = useMemo(() => chipsByCpu(inventory), [inventory]);
  const isolated = useMemo(() => isolatedCpus(topology), [topology]);
  const innermost = useMemo(() => innermostGroups(rowsByStructure(topology, new Set())), [topology]);
  const table = search.tab === "cores";
  const toggle = (key: string) =>
    setFolded((before) => {
      const after = new Set(before);
      if (!after.delete(key)) after.add(key);
      return after;
    });
  return (
    <section className="card" aria-labelledby="cores-heading">
      <h2 className={styles.wrap}>
        <span id="cores-heading">Cores</span>
        <small title={MEANING[share]}>{share} share, max per pixel</small>
        <span className="grow" />
        <Segments
          label="Share shown"
          value={share}
          options={HEAT_SHARES.map((value) => ({ value, label: value, title: MEANING[value] }))}
          onChange={(value) => navigate({ share: value === "busy" ? undefined : value })}
        />
        <Segments
          label="Row order"
          value={search.order ?? "structure"}
          options={[
            { value: "structure", label: "by structure" },
            { value: "load", label: "hottest first" },
          ]}
          onChange={(value) => navigate({ order: value === "load" ? "load" : undefined })}
        />
        {search.order === undefined && innermost.length > 1 && (
          <button
            type="button"
            className="link"
            onClick={() => setFolded(folded.size > 0 ? new Set() : new Set(innermost))}
          >
            {folded.size > 0 ? "unfold all" : "fold all"}
          </button>
        )}
        <small className={styles.legend}>
          0 <i style={{ background: CIVIDIS_GRADIENT }} /> 100 % <i className="hatched" /> no data
        </small>
        <button
          type="button"
          className="link"
          onClick={() => navigate({ tab: table ? undefined : "cores" })}
          aria-pressed={table}
        >
          {table ? "view as chart" : "view as table"}
        </button>
      </h2>
      {table ? (
        <CoresTable view={view} rows={rows} chips={chips} isolated={isolated} />
      ) : (
        <Heatmap view={view} rows={rows} chips={chips} isolated={isolated} onToggle={toggle} />
      )}
    </section>
  );
}
