import { Button, Checkbox } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { errorMessage } from "../../api/client";
import { duration, formatFigure, percent, unbroken } from "../../lib/format";
import { recommendationsQuery } from "../../policies/queries";
import { ApplyPlan } from "../changes/ApplyPlan";
import type { NodeView } from "../nodeView";
import { SelectionLink } from "../panel/PanelFrame";
import { suggestionsQuery } from "../queries";
import {
  addedEffect,
  type HotSpot,
  type LoadChange,
  loadChanges,
  movesText,
  rangeText,
  recommendedText,
  settingsText,
} from "./options";
import styles from "./suggested.module.css";
import type { ShownSpot } from "./useShownSpot";

const RULES: Record<string, string> = {
  "irq-spread": "Spread interrupts",
  "network-process": "Place network processes",
};

/** The best move known for a hot CPU with its predicted effect, and up to two more that can be added to it. */
export function Suggested({ view, shown }: { view: NodeView; shown: ShownSpot }) {
  const { data, error } = useQuery(suggestionsQuery(view.node.id));
  const hot = data?.suggestions.hot ?? [];
  const { spot } = shown;
  const others = hot.filter(({ cpu }) => cpu !== spot?.cpu);
  return (
    <section className={`card ${styles.card}`} aria-labelledby="suggested-heading" aria-busy={data === undefined}>
      <h2>
        <span id="suggested-heading">Suggested</span>
        {spot?.options[0] !== undefined && <small>by the rules of {RULES[spot.options[0].policy]}</small>}
      </h2>
      <div className="body">
        {spot?.options[0] === undefined ? (
          <p className="muted" role="status">
            {unbroken(
              spot?.sentence ??
                (error !== null ? errorMessage(error) : (data?.suggestions.sentence ?? "Looking for hot CPUs…")),
            )}
          </p>
        ) : (
          <Spot
            key={spot.cpu}
            view={view}
            shown={shown}
            spot={spot}
            exclude={data?.exclude ?? ""}
            seconds={data?.suggestions.seconds ?? 0}
          />
        )}
        {others.length > 0 && (
          <p className={styles.foot}>
            Also hot:{" "}
            {others.map(({ cpu, busy }, index) => (
              <span key={cpu}>
                {index > 0 && " · "}
                <SelectionLink view={view} sel={`cpu:${cpu}`}>
                  CPU {cpu}
                </SelectionLink>{" "}
                {formatFigure(percent(busy))}
              </span>
            ))}
          </p>
        )}
      </div>
    </section>
  );
}

type SpotProps = { view: NodeView; shown: ShownSpot; spot: HotSpot; exclude: string; seconds: number };

function Spot({ view, shown: { isOpen, chosen, add }, spot, exclude, seconds }: SpotProps) {
  const { node } = view;
  const [best, ...more] = spot.options;
  const decisions = useQuery(recommendationsQuery(node.id)).data ?? [];
  if (best === undefined) return null;
  const recommended = recommendedText(best, decisions);
  return (
    <div className={styles.spot}>
      <p className={styles.move}>
        <b>{best.label}</b> <small>{best.near}</small>
      </p>
      <div className={styles.bars}>
        {loadChanges(spot.cpu, chosen).map((change) => (
          <Bar key={change.label} of={change} />
        ))}
        {best.crossing !== null && (
          <Bar
            of={{
              label: "crossing",
              before: best.crossing.before,
              least: best.crossing.after,
              most: best.crossing.after,
            }}
          />
        )}
      </div>
      <div className={styles.actions}>
        <Button
          variant="filled"
          onClick={() => view.navigate({ hot: isOpen ? undefined : spot.cpu })}
          aria-expanded={isOpen}
        >
          {isOpen ? "Close preview" : "Preview"}
        </Button>
        <Button
          renderRoot={(props) => (
            <Link
              to="/experiments/new"
              search={{ node: node.id, template: "own", settings: settingsText(chosen) }}
              {...props}
            />
          )}
        >
          Test A/B
        </Button>
        <Button
          renderRoot={(props) => (
            <Link
              to="/policies/new"
              search={{
                kind: best.policy,
                nodes: String(node.id),
                hostname: node.name,
                exclude: exclude || undefined,
              }}
              {...props}
            />
          )}
        >
          Save as policy
        </Button>
      </div>
      {more.map((option) => (
        <div key={option.label} className={styles.more}>
          <Checkbox
            size="xs"
            label={`also ${option.label}`}
            checked={chosen.includes(option)}
            onChange={({ currentTarget: { checked } }) => add(option.label, checked)}
          />
          <span className="muted">
            {addedEffect(
              spot.cpu,
              chosen.filter((one) => one !== option),
              option,
            )}
          </span>
        </div>
      ))}
      {isOpen && (
        <ApplyPlan
          node={node}
          desired={chosen.flatMap(({ moves }) => moves.map(({ key, value }) => ({ key, value })))}
          reason={`Suggested: relieve CPU ${spot.cpu}`}
          onApplied={() => view.navigate({ hot: undefined })}
        />
      )}
      {recommended !== null && (
        <p className={styles.foot}>
          {unbroken(recommended)}{" "}
          <button type="button" className="link" onClick={() => view.navigate({ tab: "policies" })}>
            Policies
          </button>
        </p>
      )}
      <p className={styles.foot}>
        Predicted from the last {duration(Math.round(seconds))}: {movesText(spot, best)}
      </p>
    </div>
  );
}

/** A load before and after: solid what stays, light the predicted range, hatched what is removed. */
function Bar({ of: { label, before, least, most } }: { of: LoadChange }) {
  const falls = least < before;
  const parts = falls
    ? ([
        [styles.stays, 0, least],
        [styles.maybe, least, most],
        [styles.removed, most, before],
      ] as const)
    : ([
        [styles.own, 0, before],
        [styles.gained, before, least],
        [styles.mayGain, least, most],
      ] as const);
  return (
    <div className={styles.bar}>
      <span>{label}</span>
      <span className={styles.track} aria-hidden>
        {parts.map(([name, from, to]) => (
          <i key={name} className={name} style={{ left: `${from}%`, width: `${Math.max(0, to - from)}%` }} />
        ))}
      </span>
      <span className={styles.figures}>
        <span className="muted">{Math.round(before)} →</span> <b>{rangeText(least, most)}</b>
      </span>
    </div>
  );
}
