import type { ReactNode } from "react";
import { Unknown } from "../../components/Unknown";
import { formatCount } from "../../lib/format";
import { DEFERRED } from "../decisions/EvaluationResult";
import { FINDINGS } from "../proof/findings";
import type { MetricProof, VersionProof } from "../proof/types";
import type { Overview } from "../types";
import styles from "./overview.module.css";

const RTT = "rtt_p99_us";

type Props = { overview: Overview; version: VersionProof | undefined; recommends: boolean };

/** What a policy does, in seven figures. recommends: it proposes changes instead of writing them. */
export function Figures({ overview, version, recommends }: Props) {
  const metrics = version?.metrics ?? [];
  const held = overview.nodes.filter((node) => node.held_out).length;
  const nodes = overview.versions.reduce((sum, one) => sum + one.nodes, 0);
  const proposing = overview.nodes.filter((node) => node.recommended > 0).length;
  const deferred = overview.deferred.reduce((sum, one) => sum + one.moves, 0);
  const drifts = overview.drifts.reduce((sum, one) => sum + one.drifts, 0);
  const restored = overview.drifts.reduce((sum, one) => sum + one.restored, 0);
  const [first] = overview.deferred;
  const [cause] = overview.drifts;
  const undone = [...new Set(overview.guardrails.map(({ node_name }) => node_name))];
  return (
    <section className={`card kpis ${styles.figures}`} aria-label="Figures">
      <Measured metric={metrics.find(({ primary }) => primary)} label="CPU per gigabit" />
      <Measured metric={metrics.find(({ metric }) => metric === RTT)} label="RTT p99" />
      <One label="Nodes" value={nodes} unit={`of ${overview.fleet.toLocaleString("en")}`}>
        {held > 0 && `${held.toLocaleString("en")} in holdout now`}
      </One>
      {recommends ? (
        <One label="Recommended now" value={overview.recommended}>
          {proposing > 0 && `on ${formatCount(proposing, "node")}`}
        </One>
      ) : (
        <One label="Moves, 24 h" value={overview.moves}>
          {nodes > 0 && `${(overview.moves / nodes).toFixed(1)} a node`}
        </One>
      )}
      <One label="Deferred now" value={deferred} tone={deferred > 0 ? "warn" : ""}>
        {first !== undefined && `${first.moves} ${DEFERRED[first.code] ?? first.code}`}
      </One>
      <One label="Drift, 24 h" value={drifts}>
        {cause !== undefined && `${cause.drifts} ${cause.cause ?? "cause unknown"} · ${restored} restored`}
      </One>
      <One label="Guardrails, 24 h" value={overview.guardrail_undos} unit="undone">
        {undone.join(", ")}
      </One>
    </section>
  );
}

/** An effect with its interval; hatched until it is measured. */
function Measured({ metric, label }: { metric: MetricProof | undefined; label: string }) {
  if (metric?.effect == null)
    return (
      <div className="kpi">
        <small>{metric?.label ?? label}</small>
        <b>
          <Unknown why={metric?.sentence ?? "The policy does not measure it."} />
        </b>
        <em>{metric === undefined ? "not measured" : FINDINGS[metric.finding].words}</em>
      </div>
    );
  const { estimate, low, high } = metric.effect;
  const tone = FINDINGS[metric.finding].tone;
  return (
    <div className="kpi" title={metric.sentence}>
      <small>{metric.label}</small>
      <b className={tone === "muted" ? "" : tone}>
        {signed(estimate)}
        <u>%</u>
      </b>
      <em>
        {low === null || high === null ? "too few blocks" : `${signed(low)} to ${signed(high)}`}
        {tone === "muted" && " · no effect seen"}
      </em>
    </div>
  );
}

const signed = (share: number): string =>
  `${share < 0 ? "−" : share > 0 ? "+" : ""}${Math.abs(100 * share).toFixed(1)}`;

type OneProps = { label: string; value: number; unit?: string; tone?: string; children: ReactNode };

function One({ label, value, unit, tone, children }: OneProps) {
  return (
    <div className="kpi">
      <small>{label}</small>
      <b className={tone}>
        {value.toLocaleString("en")}
        {unit !== undefined && <u>{unit}</u>}
      </b>
      <em>{children}</em>
    </div>
  );
}
