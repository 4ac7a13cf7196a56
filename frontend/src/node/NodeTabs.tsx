import { Tabs } from "../components/Tabs";
import { TradeOff } from "./coalescing/TradeOff";
import { NodeHistory } from "./history/NodeHistory";
import { InterruptMatrix } from "./interrupts/InterruptMatrix";
import styles from "./node.module.css";
import type { NodeView } from "./nodeView";
import { Numa } from "./numa/Numa";
import { NodePolicies } from "./policies/NodePolicies";
import { shownTab, TABS, type Tab } from "./search";
import { ServiceClasses } from "./serviceClasses/ServiceClasses";
import { NetworkTasks } from "./tasks/NetworkTasks";

const LABELS: Record<Tab, string> = {
  interrupts: "Interrupts",
  numa: "NUMA",
  coalescing: "Coalescing",
  tasks: "Tasks",
  policies: "Policies",
  history: "History",
};

/** The node's details by subject; only the open tab is mounted. */
export function NodeTabs({ view }: { view: NodeView }) {
  const open = shownTab(view.search);
  const counts: Partial<Record<Tab, number>> = {
    interrupts: view.inventory?.irqs.length ?? 0,
    tasks: view.node.tasks.length,
  };
  const tabs = TABS.map((value) => ({
    value,
    label: LABELS[value],
    ...(counts[value] !== undefined && { count: counts[value] }),
  }));
  return (
    <div className={styles.stack}>
      <Tabs label="Details" value={open} tabs={tabs} linked={view.search.tab !== undefined} />
      {open === "interrupts" && <InterruptMatrix view={view} />}
      {open === "numa" && <Numa view={view} />}
      {open === "coalescing" && <TradeOff view={view} />}
      {open === "tasks" && <NetworkTasks view={view} />}
      {open === "tasks" && <ServiceClasses view={view} />}
      {open === "policies" && <NodePolicies view={view} />}
      {open === "history" && <NodeHistory view={view} />}
    </div>
  );
}
