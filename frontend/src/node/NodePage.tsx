import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState, useSyncExternalStore } from "react";
import { ApiProblem, errorMessage, type Schemas } from "../api/client";
import { nodeQuery, WINDOWS_POLL_MS } from "../api/queries";
import { Cursor } from "../charts/cursor";
import { pointsOf } from "../charts/seriesRing";
import type { Range } from "../charts/TimeOverlay";
import { zonedTime } from "../lib/time";
import { decisionsQuery } from "../policies/queries";
import type { Decision } from "../policies/types";
import { AgentCost } from "./AgentCost";
import { Cores } from "./cores/Cores";
import { NodeHeader } from "./NodeHeader";
import { NodeTabs } from "./NodeTabs";
import styles from "./node.module.css";
import type { NodeView } from "./nodeView";
import { Panel } from "./panel/Panel";
import { changesQuery, heatQuery, seriesQuery } from "./queries";
import type { NodeSearch } from "./search";
import { Suggested } from "./suggested/Suggested";
import { useShownSpot } from "./suggested/useShownSpot";
import type { LiveWindow } from "./time/liveWindow";
import { TimeBar } from "./time/TimeBar";
import { changeMarks, decisionMarks } from "./time/timeMarks";
import { useKept } from "./time/useKept";
import { useLiveWindow } from "./time/useLiveWindow";
import { useTimeKeys } from "./time/useTimeKeys";
import { MetricCharts } from "./timeseries/MetricCharts";
import { SummaryFigures } from "./timeseries/SummaryFigures";
import type { Change, Topology } from "./types";
import { WhyCard } from "./why/WhyCard";

const route = getRouteApi("/shell/nodes/$nodeId");
/** How often a node is read until its agent has reported it. */
const UNREPORTED_POLL_MS = 2_000;

/** The page of a node: time range, figures, charts, heatmap, the selection's panel, suggestions, and tabs of details. */
export function NodePage() {
  const { nodeId } = route.useParams();
  const node = useQuery({
    ...nodeQuery(nodeId),
    // no event says that the report came, or that a window opened
    refetchInterval: ({ state }) => (state.data?.topology === null ? UNREPORTED_POLL_MS : WINDOWS_POLL_MS),
  });
  if (node.data === undefined) {
    if (!node.isError) return <Skeleton />;
    const missing = node.error instanceof ApiProblem && node.error.status === 404;
    return (
      <section className="card" role="alert">
        <h2>{missing ? "Node not found" : "Node could not be loaded"}</h2>
        <div className="body">
          <p>{errorMessage(node.error)}</p>
          <Link to="/fleet">Back to the fleet</Link>
        </div>
      </section>
    );
  }
  if (node.data.topology === null)
    return (
      <>
        <NodeHeader node={node.data} />
        <section className="card">
          <h2>No data yet</h2>
          <div className="body">
            <p>{node.data.name} is enrolled, but its agent has not reported yet. Data appears when it connects.</p>
          </div>
        </section>
      </>
    );
  return <LoadedNode key={nodeId} node={node.data} topology={node.data.topology} />;
}

/** Placeholder while the node loads: the places and sizes of time range, figures, charts, CPUs and the column beside. */
function Skeleton() {
  return (
    <div aria-busy="true" role="status">
      <span className="visually-hidden">Loading node</span>
      {["bar", "figures", "charts"].map((part) => (
        <div key={part} className={styles.skeleton} data-part={part} />
      ))}
      <div className={styles.answers}>
        <div className={`${styles.skeleton} ${styles.cores}`} data-part="cores" />
        <div className={`${styles.skeleton} ${styles.side}`} data-part="cores" />
      </div>
    </div>
  );
}

const ADDS_TO_HISTORY = ["from", "span", "sel", "tab", "chart"];

function useNavigation() {
  const navigate = route.useNavigate();
  return useCallback(
    (change: Partial<NodeSearch>, options: { replace?: boolean } = {}) => {
      const addsToHistory = ADDS_TO_HISTORY.some((name) => name in change);
      const replace = options.replace ?? !addsToHistory;
      void navigate({ search: (before) => ({ ...before, ...change }), replace, resetScroll: false });
    },
    [navigate],
  );
}

/** Up to this number of CPUs the heatmap is lower than the column next to it, and the tabs fit below it. */
const FEW_CPUS = 24;

const NO_CHANGES: Change[] = [];
const NO_DECISIONS: Decision[] = [];

function LoadedNode({ node, topology }: { node: Schemas["Node"]; topology: Topology }) {
  const search = route.useSearch();
  const navigate = useNavigation();
  const [cursor] = useState(() => new Cursor());
  const { from, to } = search;
  const past = useMemo<Range | null>(() => (from !== undefined && to !== undefined ? { from, to } : null), [from, to]);
  const share = search.share ?? "busy";
  const cpus = Math.max(0, ...topology.cpus.map((cpu) => cpu.cpu)) + 1;
  const { window, next, behind, show } = useLiveWindow(node, cpus, search.span ?? 300, share);

  const heat = useQuery(heatQuery(node.id, share, past ?? behind));
  const series = useQuery(seriesQuery(node.id, past ?? behind));
  const changes = useQuery(changesQuery(node.id, null)).data?.changes ?? NO_CHANGES;
  const skewMs = node.clock_skew_ms ?? 0;
  // biome-ignore lint/correctness/useExhaustiveDependencies: each measurement of the skew differs by a fraction of a ms.
  const stored = useMemo(() => past && { from: past.from - skewMs, to: past.to - skewMs }, [past]);
  const decisions = useQuery(decisionsQuery(node.id, stored)).data ?? NO_DECISIONS;
  const visibleChanges = useQuery(changesQuery(node.id, stored)).data?.changes ?? NO_CHANGES;
  useEffect(() => {
    if (past === null && heat.data !== undefined && !heat.isPlaceholderData) next.fillHeat(share, heat.data);
  }, [past, heat.data, heat.isPlaceholderData, next, share]);
  useEffect(() => {
    if (past === null && series.data !== undefined && !series.isPlaceholderData) next.fillSeries(series.data);
  }, [past, series.data, series.isPlaceholderData, next]);
  const isFilling = past === null && [heat, series].some((query) => query.isPending || query.isPlaceholderData);
  useEffect(() => {
    if (!isFilling) show();
  }, [isFilling, show]);
  const staleSince = useStaleSince(node, window, past);
  const kept = useKept(node, window, staleSince);

  const marks = useMemo(() => changeMarks(visibleChanges, skewMs), [visibleChanges, skewMs]);
  const policyMarks = useMemo(() => decisionMarks(decisions, skewMs), [decisions, skewMs]);
  const zoom = useCallback((range: Range) => navigate({ from: range.from, to: range.to }), [navigate]);
  const hold = useCallback((held: boolean) => window.hold(held), [window]);
  const pause = useCallback(() => {
    const range = window.range();
    zoom({ from: Math.round(range.from), to: Math.round(range.to) });
  }, [window, zoom]);
  useTimeKeys(past !== null, pause, navigate);

  const pastHeat = past === null ? null : (heat.data ?? null);
  const pastPoints = useMemo(
    () => (past === null || series.data === undefined ? [] : pointsOf(series.data)),
    [past, series.data],
  );
  const { inventory } = node;
  const view = useMemo<NodeView>(
    () => ({
      ...{ node, topology, inventory, search, navigate, window, past, stored, staleSince, kept, pastHeat, changes },
      ...{ marks, policyMarks, cursor, zoom, hold },
    }),
    [
      node,
      topology,
      inventory,
      search,
      navigate,
      window,
      past,
      stored,
      staleSince,
      kept,
      pastHeat,
      changes,
      marks,
      policyMarks,
      cursor,
      zoom,
      hold,
    ],
  );
  const shown = useShownSpot(node.id, search);
  const failed = heat.error ?? series.error;
  return (
    <>
      <NodeHeader node={node} />
      <TimeBar view={view} onPause={pause} />
      <NoSamples view={view} />
      {node.mode === "observe" && (
        <p className={styles.warnbox}>
          <b>This node is observe-only:</b> its settings cannot be changed. {node.observe_reason}
        </p>
      )}
      {failed !== null && (
        <p className={styles.warnbox} role="alert">
          <b>History could not be read.</b> {errorMessage(failed)}
        </p>
      )}
      <SummaryFigures view={view} pastPoints={pastPoints} />
      <MetricCharts view={view} pastPoints={pastPoints} />
      <div
        className={styles.answers}
        data-beside={search.sel !== undefined || topology.cpus.length <= FEW_CPUS || undefined}
        data-silent={staleSince !== null || undefined}
        aria-busy={isFilling}
      >
        <div className={styles.cores}>
          <Cores view={view} shown={shown} />
        </div>
        <div className={styles.side} data-selected={search.sel !== undefined || undefined}>
          {search.sel !== undefined && <Panel view={view} sel={search.sel} />}
          <WhyCard view={view} />
          <Suggested view={view} shown={shown} />
        </div>
        <div className={styles.details}>
          <NodeTabs view={view} />
          <AgentCost view={view} />
        </div>
      </div>
    </>
  );
}

/** The time of the shown live figures if they are stale; null in a past range and while samples arrive. */
function useStaleSince(node: Schemas["Node"], window: LiveWindow, past: Range | null): number | null {
  const silent = useSyncExternalStore(window.on, window.staleSince);
  if (past !== null) return null;
  const seen = node.health === "live" || node.last_seen_at === null ? null : Date.parse(node.last_seen_at);
  return silent ?? (window.last === undefined ? seen : null);
}

/** States why no live samples arrive, and how old the shown figures are. */
function NoSamples({ view: { node, past, staleSince } }: { view: NodeView }) {
  if (past !== null || (node.health === "live" && staleSince === null)) return null;
  const why = {
    live: "No samples arrive.",
    stale: "The agent is connected but sends no samples.",
    away: "The agent is not connected.",
    new: "The agent is not connected.",
  }[node.health];
  return (
    <p className={styles.warnbox} role="status">
      <b>{why}</b> {staleSince === null ? "It was never seen." : `Gray: last value, of ${zonedTime(staleSince)}.`}{" "}
      Hatched: no data.
    </p>
  );
}
