import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { errorMessage } from "../../api/client";
import { formatCount } from "../../lib/format";
import { EffectChart } from "../proof/EffectChart";
import { Effects } from "../proof/Effects";
import { Episodes } from "../proof/Episodes";
import { metricRows } from "../proof/metricRows";
import { ProofVersions } from "../proof/ProofVersions";
import proofStyles from "../proof/proof.module.css";
import type { PolicyProof, VersionProof } from "../proof/types";
import { overviewQuery, proofQuery } from "../queries";
import { RolloutCard } from "../rollouts/RolloutCard";
import type { PolicySearch } from "../search";
import type { Overview, Policy, PolicyBody, PolicyVersion } from "../types";
import { DeferredAndDrift } from "./DeferredAndDrift";
import { Figures } from "./Figures";
import styles from "./overview.module.css";
import { Recommendations } from "./Recommendations";

type Props = {
  policy: Policy;
  versions: PolicyVersion[];
  search: PolicySearch;
  navigate: (change: Partial<PolicySearch>) => void;
};

/** What the policy did: figures, effect over time and by group, rollout, deferred moves and drift. */
export function OverviewTab(props: Props) {
  const proof = useQuery(proofQuery(props.policy.id, props.search.label));
  const overview = useQuery(overviewQuery(props.policy.id));
  const error = proof.error ?? overview.error;
  if (proof.data !== undefined && overview.data !== undefined)
    return <Loaded {...props} proof={proof.data} overview={overview.data} atMs={proof.dataUpdatedAt} />;
  if (error === null)
    return (
      <p className="muted" role="status">
        Loading the overview.
      </p>
    );
  return (
    <section className="card" role="alert">
      <h2>The overview cannot be shown</h2>
      <p className="body bad">{errorMessage(error)}</p>
    </section>
  );
}

type LoadedProps = Props & { proof: PolicyProof; overview: Overview; atMs: number };

function Loaded({ policy, versions, search, navigate, proof, overview, atMs }: LoadedProps) {
  const inForce = proof.versions.find(({ version }) => version === policy.version);
  const chosen = proof.versions.find(({ version }) => version === search.version) ?? inForce ?? proof.versions[0];
  const body = versions.find(({ version }) => version === chosen?.version)?.body;
  return (
    <>
      <Figures
        overview={overview}
        version={chosen}
        recommends={policy.body.mode === "recommend" || overview.recommended > 0}
      />
      <Recommendations overview={overview} />
      {chosen === undefined ? (
        <Nothing />
      ) : (
        <Evidence
          policy={policy}
          proof={proof}
          chosen={chosen}
          body={body}
          atMs={atMs}
          search={search}
          navigate={navigate}
        />
      )}
      <div className={styles.halves}>
        <RolloutCard policy={policy} navigate={navigate} />
        <DeferredAndDrift overview={overview} />
      </div>
      {chosen !== undefined && (
        <div className={styles.stack}>
          <ProofVersions policy={policy} versions={proof.versions} chosen={chosen.version} navigate={navigate} />
          <Episodes version={chosen} settings={body?.proof} paused={proof.paused_at !== null} />
        </div>
      )}
    </>
  );
}

type EvidenceProps = Pick<Props, "policy" | "search" | "navigate"> & {
  proof: PolicyProof;
  chosen: VersionProof;
  body: PolicyBody | undefined;
  atMs: number;
};

/** The effect of the versions over time, and of the chosen one on each group of nodes and each metric. */
function Evidence({ policy, proof, chosen, body, atMs, search, navigate }: EvidenceProps) {
  const primary = chosen.metrics.find((one) => one.primary);
  const metric = chosen.metrics.some((one) => one.metric === search.metric) ? search.metric : primary?.metric;
  return (
    <div className={styles.halves}>
      <section className="card" aria-label="Effect over time">
        <h2 className={proofStyles.wrapping}>
          Effect over time <small>enforced against held out, all versions</small>
          <span className="grow" />
          {chosen.metrics.length > 1 && (
            <NativeSelect
              aria-label="Metric over time"
              value={metric ?? ""}
              data={chosen.metrics.map(({ metric: value, label }) => ({ value, label }))}
              onChange={({ currentTarget: { value } }) =>
                navigate({ metric: value === primary?.metric ? undefined : value })
              }
            />
          )}
        </h2>
        <div className="body">
          {metric !== undefined && <EffectChart policy={policy} proof={proof} metric={metric} atMs={atMs} />}
        </div>
      </section>
      <div className={styles.stack}>
        <Effects
          title={`Groups of v${chosen.version}`}
          note={primary?.label ?? "No primary metric"}
          first={proof.label ?? "group"}
          empty={chosen.episodes > 0 ? "The nodes of its episodes have no labels." : "No episode has counted so far."}
          rows={chosen.groups.map((group) => ({ name: group.value, tag: undefined, ...group }))}
        >
          {proof.labels.length > 0 && (
            <NativeSelect
              aria-label="Group by label"
              value={proof.label ?? ""}
              data={[...new Set([...(proof.label === null ? [] : [proof.label]), ...proof.labels])]}
              onChange={(event) => navigate({ label: event.currentTarget.value })}
            />
          )}
        </Effects>
        <Effects
          title={`Metrics of v${chosen.version}`}
          note={`${formatCount(chosen.episodes, "episode")} on ${formatCount(chosen.nodes, "node")}`}
          first="metric"
          rows={metricRows(chosen, body)}
        />
      </div>
    </div>
  );
}

function Nothing() {
  return (
    <section className={`card ${styles.nothing}`} aria-label="Effect over time">
      <h2>Effect over time</h2>
      <div className="body">
        <p className={`hatched ${proofStyles.nothing}`}>
          <span>No version of this policy has been compared yet.</span>
        </p>
        <p className="muted">
          While a version is in force in mode enforce, each node sometimes restores its settings for one block of time
          and enforces the policy for another block next to it. The differences between the two show what the version
          changes. The share of time and the metrics are set under Proof in the tab Edit.
        </p>
      </div>
    </section>
  );
}
