import { useQuery } from "@tanstack/react-query";
import { useSearch } from "@tanstack/react-router";
import { PageTop } from "../components/PageTop";
import { Tabs } from "../components/Tabs";
import { AlertTable } from "./AlertTable";
import styles from "./alerts.module.css";
import { alertsQuery } from "./queries";
import { Receivers } from "./Receivers";
import { Rules } from "./Rules";
import { Silences } from "./Silences";

/** Alerts that fire and those that are resolved, silences, rules and receivers. */
export function AlertsPage() {
  const { tab = "alerts" } = useSearch({ from: "/shell/alerts" });
  const firing = useQuery(alertsQuery).data?.firing;
  return (
    <>
      <PageTop title="Alerts">
        <h1>Alerts</h1>
        {firing !== undefined && <span className={firing === 0 ? "tag" : "tag bad"}>{firing} firing</span>}
      </PageTop>
      <Tabs
        label="Views of alerts"
        value={tab}
        tabs={[
          { value: "alerts", label: "Alerts" },
          { value: "rules", label: "Rules" },
          { value: "receivers", label: "Receivers" },
        ]}
      />
      <div className={styles.content}>
        {tab === "alerts" && (
          <>
            <AlertTable />
            <Silences />
          </>
        )}
        {tab === "rules" && <Rules />}
        {tab === "receivers" && <Receivers />}
      </div>
    </>
  );
}
