import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link, useRouter } from "@tanstack/react-router";
import { useCallback, useEffect, useMemo, useState } from "react";
import { ApiProblem, errorMessage, type Schemas } from "../api/client";
import { nodeQuery } from "../api/queries";
import { Cursor } from "../charts/cursor";
import { pointsOf } from "../charts/seriesRing";
import type { Range } from "../charts/TimeOverlay";
import { dateTime } from "../lib/time";
import { decisionsQuery } from "../policies/queries";
import type { Decision } from "../policies/types";
import { AgentCost } from "./AgentCost";
import { TradeOff } from "./coalescing/TradeOff";
import { Cores } from "./cores/Cores";
import { InterruptMatrix } from "./interrupts/InterruptMatrix";
import { NodeHeader } from "./NodeHeader";
import styles from "./node.module.css";
import type { NodeView } from "./nodeView";
import { Numa } from "./numa/Numa";
import { Panel } from "./panel/Panel";
import { NodePolicies } from "./policies/NodePolicies";
import { changesQuery, heatQuery, seriesQuery } from "./queries";
import type { NodeSearch } from "./search";
import { ServiceClasses } from "./serviceClasses/ServiceClasses";
import { NetworkTasks } from "./tasks/NetworkTasks";
import { TimeBar } from "./time/TimeBar";
import { changeMarks, decisionMarks } from "./time/timeMarks";
import { useLiveWindow } from "./time/useLiveWindow";
import { MetricCharts } from "./timeseries/MetricCharts";
import { SummaryFigures } from "./timeseries/SummaryFigures";
import type { Change, Topology } from "./types";

const route = getRouteApi("/shell/nodes/$nodeId");

/** The page of a node: time range, figures, heatmap, network tasks, NUMA, policies, charts, and the panel of the selection. */
export function NodePage() {
  const { nodeId } = route.useParams();
  const node = useQuery(nodeQuery(nodeId));
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

/** Placeholder of the page's size while the node loads. */
function Skeleton() {
  return (
    <div aria-busy="true" role="status">
      <span className="visually-hidden">Loading node</span>
      <div className={styles.skeleton} style={{ height: 28 }} />
      <div className={styles.skeleton} style={{ height: 68 }} />
      <div className={styles.skeleton} style={{ height: 320 }} />
      <div className={styles.skeleton} style={{ height: 200 }} />
    </div>
  );
}

function useNavigation() {
  const navigate = route.useNavigate();
  return useCallback(
    (change: Partial<NodeSearch>, options: { replace?: boolean } = {}) => {
      const addsToHistory = "from" in change || "span" in change || "sel" in change;
      const replace = options.replace ?? !addsToHistory;
      void navigate({ search: (before) => ({ ...before, ...change }), replace, resetScroll: false });
    },
    [navigate],
  );
}

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
  const { window, behind } = useLiveWindow(node, cpus, search.span ?? 300, share);

  const heat = useQuery(heatQuery(node.id, share, past ?? behind));
  const series = useQuery(seriesQuery(node.id, past ?? behind));
  const changes = useQuery(changesQuery(node.id, null)).data?.changes ?? NO_CHANGES;
  const decisions = useQuery(decisionsQuery(node.id, past)).data ?? NO_DECISIONS;
  const visibleChanges = useQuery(changesQuery(node.id, past)).data?.changes ?? NO_CHANGES;
  useEffect(() => {
    if (past === null && heat.data !== undefined && !heat.isPlaceholderData) window.fillHeat(heat.data);
  }, [past, heat.data, heat.isPlaceholderData, window]);
  useEffect(() => {
    if (past === null && series.data !== undefined && !series.isPlaceholderData) window.fillSeries(series.data);
  }, [past, series.data, series.isPlaceholderData, window]);

  const skewMs = node.clock_skew_ms ?? 0;
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
      ...{ node, topology, inventory, search, navigate, window, past, pastHeat, changes },
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
      pastHeat,
      changes,
      marks,
      policyMarks,
      cursor,
      zoom,
      hold,
    ],
  );
  const failed = heat.error ?? series.error;
  return (
    <>
      <NodeHeader node={node} />
      <TimeBar view={view} onPause={pause} />
      <NoSamples node={node} past={past} />
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
      <div className={search.sel === undefined ? styles.one : styles.two}>
        <div className={styles.stack} aria-busy={heat.isPending || series.isPending}>
          <Cores view={view} />
          <NetworkTasks view={view} />
          <Numa view={view} />
          <NodePolicies view={view} />
          <InterruptMatrix view={view} />
          <TradeOff view={view} />
          <ServiceClasses view={view} />
          <MetricCharts view={view} pastPoints={pastPoints} />
          <AgentCost view={view} />
        </div>
        {search.sel !== undefined && <Panel view={view} sel={search.sel} />}
      </div>
    </>
  );
}

/** States why no live samples arrive. */
function NoSamples({ node, past }: { node: Schemas["Node"]; past: Range | null }) {
  if (past !== null || node.health === "live") return null;
  const seen = node.last_seen_at === null ? "never" : dateTime(Date.parse(node.last_seen_at));
  return (
    <p className={styles.warnbox} role="status">
      <b>{node.health === "stale" ? "The agent is connected but sends no samples." : "The agent is not connected."}</b>{" "}
      Last seen {seen}. Hatched: no data.
    </p>
  );
}

function isTyping(target: EventTarget | null): boolean {
  return target instanceof HTMLElement && /^(INPUT|TEXTAREA|SELECT)$/.test(target.tagName);
}

/** Space pauses and resumes, Backspace returns to the previous range. */
function useTimeKeys(isPast: boolean, pause: () => void, navigate: (change: Partial<NodeSearch>) => void): void {
  const { history } = useRouter();
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (isTyping(event.target) || event.ctrlKey || event.metaKey || event.altKey) return;
      const live = () => navigate({ from: undefined, to: undefined });
      if (event.key === " " && !(event.target instanceof HTMLButtonElement)) {
        event.preventDefault();
        if (isPast) live();
        else pause();
      } else if (event.key === "Backspace" && isPast) {
        event.preventDefault();
        if (history.canGoBack()) history.back();
        else live();
      }
    };
    document.addEventListener("keydown", onKey);
    return () => document.removeEventListener("keydown", onKey);
  }, [isPast, pause, navigate, history]);
}
