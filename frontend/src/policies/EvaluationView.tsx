import { type ReactNode, useState } from "react";
import { selectionOf, settingName } from "../lib/settings";
import { Scroll } from "../shell/Scroll";
import classes from "./policies.module.css";
import type { Evaluation } from "./types";

const HELD: Record<string, string> = {
  overruled: "another policy goes first",
  dwell: "moved a moment ago",
  flap_damping: "would go back and forth",
  moves: "enough moves this round",
  owned: "somebody else's",
  refused: "refused",
};

type Props = {
  evaluation: Evaluation;
  /** Whose or when, to tell several on a page apart. */
  label: string;
  /** Shows a setting in the page's panel. */
  onSelect?: (sel: string) => void;
};

/** A setting's name; where the page can show it, it leads there. */
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
  const sel = selectionOf(of);
  if (onSelect === undefined || sel === null) return <span title={of}>{name}</span>;
  return (
    <button type="button" className="link" title={of} onClick={() => onSelect(sel)}>
      {name}
    </button>
  );
}

/** What a policy would write or writes: was, becomes and why. */
function Actions({ actions, label, onSelect }: Pick<Props, "label" | "onSelect"> & Pick<Evaluation, "actions">) {
  return (
    <Scroll label={`Moves, ${label}`}>
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
                <code>{action.was}</code> <span aria-hidden="true">→</span>
                <span className="visually-hidden">becomes</span> <code>{action.becomes}</code>
              </td>
              <td className="wrap">{action.reason}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}

/** What a policy evaluated on a node: its moves with their reasons, what is held back, and why the rest stays. */
export function EvaluationView({ evaluation, label, onSelect }: Props) {
  const { actions, deferred, skipped, drifts } = evaluation;
  return (
    <div className={classes.evaluation}>
      <p>{evaluation.sentence}</p>
      {actions.length > 0 && <Actions actions={actions} label={label} {...(onSelect && { onSelect })} />}
      <More title="Held back" of={deferred.length} open>
        {groupsBy(deferred, ({ code, why }) => `${code} ${why}`).map(([key, [first, ...rest]]) => (
          <li key={key}>
            <span className="tag warn">{HELD[first.code] ?? first.code.replaceAll("_", " ")}</span> {first.why}
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
      <More title="Why not" of={skipped.length} open={actions.length === 0}>
        {groupsBy(skipped, ({ why }) => why).map(([why, alike]) => (
          <li key={why}>
            <b>{alike.map(({ subject }) => subject).join(", ")}</b> {why}
          </li>
        ))}
      </More>
      <More title="Changed by others" of={drifts.length} open>
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

/** Items that have the same to say, together, in the order of the first of each. */
function groupsBy<T>(items: T[], keyOf: (item: T) => string): [key: string, alike: [T, ...T[]]][] {
  const groups = new Map<string, [T, ...T[]]>();
  for (const item of items) {
    const alike = groups.get(keyOf(item));
    if (alike === undefined) groups.set(keyOf(item), [item]);
    else alike.push(item);
  }
  return [...groups];
}

/** Up to so many are shown unfolded; a machine may have hundreds of interrupts that stay. */
const UNFOLDED = 8;

function More({ title, of, open, children }: { title: string; of: number; open: boolean; children: ReactNode }) {
  const [opened, setOpened] = useState(open && of <= UNFOLDED);
  if (of === 0) return null;
  return (
    <details className={classes.more} open={opened} onToggle={(event) => setOpened(event.currentTarget.open)}>
      <summary>
        {title} <span className="muted">{of.toLocaleString("en")}</span>
      </summary>
      {opened && <ul>{children}</ul>}
    </details>
  );
}
