import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { errorMessage } from "../api/client";
import { useHasRole } from "../auth/me";
import { Moment } from "../components/Moment";
import { ActionsHeading } from "../components/RowsTable";
import { Scroll } from "../components/Scroll";
import { formatCount } from "../lib/format";
import { type Alert, alertsQuery } from "./queries";
import { SilenceDialog } from "./SilenceDialog";
import { patternsOf, valueText } from "./words";

function Subject({ alert }: { alert: Alert }) {
  if (alert.node_id !== null)
    return (
      <Link to="/nodes/$nodeId" params={{ nodeId: alert.node_id }}>
        {alert.name}
      </Link>
    );
  if (alert.policy_id !== null)
    return (
      <Link to="/policies/$policyId" params={{ policyId: alert.policy_id }}>
        {alert.name}
      </Link>
    );
  return alert.name;
}

function State({ alert }: { alert: Alert }) {
  if (alert.resolved_at !== null)
    return (
      <span className="muted">
        resolved <Moment at={alert.resolved_at} />
      </span>
    );
  if (alert.silence !== null) return <span className="tag">silenced</span>;
  return <span className={alert.severity === "critical" ? "tag bad" : "tag warn"}>{alert.severity}</span>;
}

/** Alerts: those that fire first, the newest first. */
export function AlertTable() {
  const alerts = useQuery(alertsQuery);
  const maySilence = useHasRole("operator");
  const [silencing, setSilencing] = useState<Alert | null>(null);
  const rows = alerts.data?.alerts;
  const listed = rows?.filter(({ resolved_at }) => resolved_at === null).length ?? 0;
  const more = (alerts.data?.firing ?? 0) - listed;
  return (
    <section className="card" aria-label="Alerts" aria-busy={alerts.isFetching}>
      {alerts.isError && (
        <p className="body bad" role="alert">
          {errorMessage(alerts.error)}
        </p>
      )}
      {rows?.length === 0 && <p className="body muted">Nothing fires, and nothing has fired.</p>}
      {more > 0 && <p className="body">{formatCount(more, "more alert")} firing; the newest are listed.</p>}
      {rows !== undefined && rows.length > 0 && (
        <Scroll label="Table of alerts">
          <table className="table">
            <thead>
              <tr>
                <th>state</th>
                <th>rule</th>
                <th>node</th>
                <th className="n">value</th>
                <th>since</th>
                <ActionsHeading />
              </tr>
            </thead>
            <tbody>
              {rows.map((alert) => (
                <tr key={alert.id}>
                  <td>
                    <State alert={alert} />
                  </td>
                  <td title={alert.label}>{alert.rule}</td>
                  <td>
                    <Subject alert={alert} />
                  </td>
                  <td className="n">{valueText(alert)}</td>
                  <td>
                    <Moment at={alert.fired_at} />
                  </td>
                  <td>
                    {maySilence && alert.resolved_at === null && alert.silence === null && (
                      <Button onClick={() => setSilencing(alert)} aria-label={`Silence ${alert.rule} of ${alert.name}`}>
                        Silence…
                      </Button>
                    )}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      {silencing !== null && <SilenceDialog patterns={patternsOf(silencing)} onClose={() => setSilencing(null)} />}
    </section>
  );
}
