import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { Unknown } from "../../components/Unknown";
import { formatCount, unbroken } from "../../lib/format";
import { flowsQuery } from "../../policies/queries";
import { averageRates } from "../interrupts/matrixRows";
import type { NodeView } from "../nodeView";
import { SelectionLink } from "../panel/PanelFrame";
import { suggestionsQuery } from "../queries";
import { indexTopology, rxPathsOf } from "../tasks/rxPath";
import { percents } from "../time/load";
import { useLiveLoad, useLoad } from "../time/useLoad";
import { usePastFacts } from "./pastFacts";
import { explain, type Facts, rankText, type Step, selectedFocus } from "./why";
import styles from "./why.module.css";

function useFacts(view: NodeView): Facts {
  const { node, topology, inventory, window } = view;
  const { frames, shares } = useLiveLoad(window);
  const flows = useQuery(flowsQuery(node.id)).data;
  const places = useMemo(() => indexTopology(topology), [topology]);
  const paths = useMemo(() => rxPathsOf(flows?.tasks ?? [], places, inventory), [flows, places, inventory]);
  const live = useMemo(() => {
    const irq = percents(shares.irq);
    const softirq = percents(shares.softirq).map((share, cpu) => {
      const handled = irq[cpu] ?? null;
      return share === null || handled === null ? null : Math.min(100, share + handled);
    });
    return { rates: averageRates(frames), busy: percents(shares.busy), softirq };
  }, [frames, shares]);
  return { topology, inventory, paths, tasks: node.tasks, ...live };
}

/** Why the hottest CPU, or the selected CPU or IRQ, is loaded: a sentence and the chain from task to memory. */
export function WhyCard({ view }: { view: NodeView }) {
  const live = useFacts(view);
  const stored = usePastFacts(view);
  const isPast = view.past !== null;
  const hot = useQuery(suggestionsQuery(view.node.id)).data?.suggestions.hot ?? [];
  const facts = isPast ? stored : live;
  const { hottest } = useLoad(view, "busy");
  const hasSamples = useLiveLoad(view.window).frames.length > 0;
  const selected = facts && selectedFocus(facts, view.search.sel);
  const focus = selected ?? (hottest === null ? null : { cpu: hottest.cpu, irq: null });
  const isKnown = facts !== null && (isPast ? facts.rates !== null : hasSamples);
  const why =
    focus === null || !isKnown
      ? null
      : explain(
          facts,
          focus,
          hot.some(({ cpu }) => !isPast && cpu === focus.cpu),
        );
  return (
    <section className={`card ${styles.card}`} aria-labelledby="why-heading">
      <h2>
        <span id="why-heading">Why</span>
        {focus !== null && (
          <small>
            {focus.irq !== null && `IRQ ${focus.irq} on `}CPU {focus.cpu}
            {facts !== null && focus.cpu === hottest?.cpu && ` · ${rankText(facts.busy, focus.cpu)}`}
          </small>
        )}
        <span className="grow" />
        {why !== null && why.more > 0 && focus !== null && (
          <button
            type="button"
            className="link"
            onClick={() => view.navigate({ tab: "tasks", find: `CPU ${focus.cpu}` })}
          >
            {formatCount(why.more, "more flow")}
          </button>
        )}
      </h2>
      <div className="body">
        {why === null ? (
          <p className="muted" role="status">
            {!isPast
              ? "Waiting for the first samples."
              : facts === null
                ? "Loading the shown range."
                : "The load and the interrupts of this range are not stored."}
          </p>
        ) : (
          <>
            <p className={styles.say}>
              <b>{why.lead}</b> {unbroken(why.rest)}
            </p>
            {isPast && <p className={styles.foot}>The mean of the shown range. Tasks and sockets are not stored.</p>}
            <ol className={styles.chain} aria-label="Chain">
              {why.steps.map((step) => (
                <Hop key={step.name} view={view} step={step} />
              ))}
            </ol>
            {why.hidden > 0 && (
              <p className={styles.foot}>{formatCount(why.hidden, "loopback flow")} hidden: no hardware queue</p>
            )}
          </>
        )}
      </div>
    </section>
  );
}

function Hop({ view, step }: { view: NodeView; step: Step }) {
  const isHotSpot = step.name === "core" && step.bad;
  return (
    <li className={styles.hop} data-hot={isHotSpot || undefined} data-cut={step.cut || undefined}>
      <span className={styles.dot} aria-hidden />
      <small>{step.name}</small>
      <span className={styles.what} title={[step.text, step.detail].filter(Boolean).join(" ")}>
        {step.text === null ? (
          <Unknown why={step.why} />
        ) : (
          <>
            {step.sel !== undefined && step.sel !== view.search.sel ? (
              <SelectionLink view={view} sel={step.sel}>
                {step.text}
              </SelectionLink>
            ) : (
              step.text
            )}{" "}
            <small>{step.detail}</small>
          </>
        )}
      </span>
      <span className={step.bad ? "bad" : "muted"}>{step.text === null ? "" : step.figure}</span>
    </li>
  );
}
