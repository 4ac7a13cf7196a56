import { type ReactNode, useState } from "react";
import { Scroll } from "../../components/Scroll";
import { unbroken } from "../../lib/format";
import { panelSelection, settingName, settingValue } from "../../lib/settingKeys";
import styles from "../policies.module.css";
import type { Evaluation } from "../types";

/** Why a move waits, by its code. */
export const DEFERRED: Record<string, string> = {
  overruled: "overruled by another policy",
  dwell: "within dwell time",
  flap_damping: "flap damping",
  moves: "next round",
  owned: "owned by another controller",
  refused: "refused",
};

type Props = {
  evaluation: Evaluation;
  /** Name or time that distinguishes several on a page. */
  label: string;
  /** Opens a setting in the page's panel. */
  onSelect?: (sel: string) => void;
};

/** A setting's name, as a link if the page can show the setting. */
export function SettingName({
  of,
  subject,
  onSelect,
}: {
  of: string;
  subject?: string;
  onSelect?: (sel: string) => void;
}) {
  const name = subject || settingName(of);
  const sel = panelSelection(of);
  if (onSelect === undefined || sel === null) return <span title={of}>{name}</span>;
  return (
    <button type="button" className="link" title={of} onClick={() => onSelect(sel)}>
      {name}
    </button>
  );
}

/** The previous and the new value of a setting. */
export function WasBecomes({ action }: { action: { key: string; was: string; becomes: string } }) {
  return (
    <>
      <code>{settingValue(action.key, action.was)}</code> <span aria-hidden="true">→</span>
      <span className="visually-hidden">becomes</span> <code>{settingValue(action.key, action.becomes)}</code>
    </>
  );
}

/** The changes of a policy: previous value, new value and reason. */
function Actions({ actions, label, onSelect }: Pick<Props, "label" | "onSelect"> & Pick<Evaluation, "actions">) {
  return (
    <Scroll label={`Changes, ${label}`}>
      <table className="table">
        <thead>
          <tr>
            <th>setting</th>
            <th>was → becomes</th>
            <th>why</th>
          </tr>
        </thead>
        <tbody>
          {actions.map((action) => (
            <tr key={action.key}>
              <td>
                <SettingName of={action.key} {...(onSelect && { onSelect })} />
              </td>
              <td>
                <WasBecomes action={action} />
              </td>
              <td className="wrap">{action.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** The result of an evaluation: changes with reasons, deferred changes, and skipped settings with reasons. */
export function EvaluationResult({ evaluation, label, onSelect }: Props) {
  const { actions, deferred, skipped, drifts } = evaluation;
  return (
    <div className={styles.evaluation}>
      <p>{unbroken(evaluation.sentence)}</p>
      {actions.length > 0 && <Actions actions={actions} label={label} {...(onSelect && { onSelect })} />}
      <More title="Deferred" of={deferred.length} open>
        {groupsBy(deferred, ({ code, why }) => `${code} ${why}`).map(([key, [first, ...rest]]) => (
          <li key={key}>
            <span className="tag warn">{DEFERRED[first.code] ?? first.code.replaceAll("_", " ")}</span> {first.why}
            <span className="muted">
              {[first, ...rest].map(({ proposal }) => (
                <span key={proposal.key}>
                  {" · "}
                  <SettingName of={proposal.key} subject={proposal.subject} {...(onSelect && { onSelect })} /> to{" "}
                  <code>{proposal.value}</code>
                </span>
              ))}
            </span>
          </li>
        ))}
      </More>
      <More title="Skipped" of={skipped.length} open={actions.length === 0}>
        {groupsBy(skipped, ({ why }) => why).map(([why, alike]) => (
          <li key={why}>
            <b>{alike.map(({ subject }) => subject).join(", ")}</b> {why}
          </li>
        ))}
      </More>
      <More title="Drift" of={drifts.length} open>
        {drifts.map((drift) => (
          <li key={drift.key}>
            <SettingName of={drift.key} {...(onSelect && { onSelect })} /> is <code>{drift.found}</code>, not{" "}
            <code>{drift.expected}</code>
            {drift.cause !== null && `, by ${drift.cause}`}
          </li>
        ))}
      </More>
    </div>
  );
}

/** Items grouped by their text, in order of first occurrence. */
function groupsBy<T>(items: T[], keyOf: (item: T) => string): [key: string, alike: [T, ...T[]]][] {
  const groups = new Map<string, [T, ...T[]]>();
  for (const item of items) {
    const alike = groups.get(keyOf(item));
    if (alike === undefined) groups.set(keyOf(item), [item]);
    else alike.push(item);
  }
  return [...groups];
}

/** Items shown before the list is collapsed; a machine may have hundreds of skipped interrupts. */
const UNFOLDED = 8;

function More({ title, of, open, children }: { title: string; of: number; open: boolean; children: ReactNode }) {
  const [opened, setOpened] = useState(open && of <= UNFOLDED);
  if (of === 0) return null;
  return (
    <details className={styles.more} open={opened} onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>
        {title} <span className="muted">{of.toLocaleString("en")}</span>
      </summary>
      {opened && <ul>{children}</ul>}
    </details>
  );
}
