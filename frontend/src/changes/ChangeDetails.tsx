import { Button, Menu } from "@mantine/core";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { HANDOVER_FORMATS, MIN_REPORT_MINUTES } from "../api/constants";
import { settingName, settingValue } from "../lib/settingKeys";
import { clock, dateTime } from "../lib/time";
import styles from "./changes.module.css";
import { ObservedTable } from "./Observed";
import type { Change } from "./queries";

/** A change in full: its steps with their times, its values, the reason, and the figures before and after it. */
export function ChangeDetails({ change }: { change: Change }) {
  const { steps, plan, results, reason, created_by, node_id, id, undone } = change;
  return (
    <div className={styles.details}>
      <div>
        <dl className={styles.steps}>
          {steps.map((step) => (
            <div key={`${step.at} ${step.sentence}`}>
              <dt>{clock(Date.parse(step.at))}</dt>
              <dd>{step.sentence}</dd>
            </div>
          ))}
          <div>
            <dt>by</dt>
            <dd>{created_by}</dd>
          </div>
          {undone !== null && (
            <div>
              <dt>undone</dt>
              <dd>
                by{" "}
                <Link to="/changes" search={{ change: undone.change }}>
                  {undone.by}, {dateTime(Date.parse(undone.at))}
                </Link>
              </dd>
            </div>
          )}
          <div>
            <dt>values</dt>
            <dd>
              {plan.actions.map((action) => (
                <div key={action.key}>
                  {settingName(action.key)}{" "}
                  <code>
                    {settingValue(action.key, action.was)} → {settingValue(action.key, action.becomes)}
                  </code>
                </div>
              ))}
            </dd>
          </div>
          {results
            .filter(({ outcome }) => outcome !== "applied")
            .map(({ key, outcome, sentence }) => (
              <div key={key}>
                <dt>{outcome}</dt>
                <dd className={outcome === "unchanged" ? "muted" : "bad"}>{sentence}</dd>
              </div>
            ))}
          {reason !== "" && (
            <div>
              <dt>reason</dt>
              <dd>{reason}</dd>
            </div>
          )}
        </dl>
        <p className={styles.links}>
          <CopyLink id={id} />
          <Link to="/nodes/$nodeId" params={{ nodeId: node_id }}>
            Node
          </Link>
          <a href={`/api/v1/changes/${id}/report?format=html&language=en`} target="_blank" rel="noreferrer">
            Report
          </a>
          {change.status === "confirmed" && <HandOver id={id} />}
          <span className="muted">
            the report needs {MIN_REPORT_MINUTES}&nbsp;min of data before and after the change
          </span>
        </p>
      </div>
      <ObservedTable change={change} />
    </div>
  );
}

/** Saves a change as files of another tool, which keep its values across reboots. */
function HandOver({ id }: { id: string }) {
  return (
    <Menu position="bottom-start" withinPortal>
      <Menu.Target>
        <button type="button" className="link" title="Files of another tool that keep these values across reboots">
          Hand over
        </button>
      </Menu.Target>
      <Menu.Dropdown>
        {Object.entries(HANDOVER_FORMATS).map(([format, title]) => (
          <Menu.Item key={format} component="a" href={`/api/v1/changes/${id}/export?format=${format}`} download>
            {title}
          </Menu.Item>
        ))}
      </Menu.Dropdown>
    </Menu>
  );
}

/** Copies a link to the change; without clipboard access (plain http) it says that the address bar has it. */
function CopyLink({ id }: { id: string }) {
  const [said, setSaid] = useState("Copy link");
  const copy = () =>
    navigator.clipboard
      .writeText(`${location.origin}/changes?change=${id}`)
      .then(() => setSaid("Copied"))
      .catch(() => setSaid("See URL"));
  return (
    <Button variant="default" onClick={() => void (navigator.clipboard ? copy() : setSaid("See URL"))}>
      <span aria-live="polite">{said}</span>
    </Button>
  );
}
