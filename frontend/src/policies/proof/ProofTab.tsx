import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { errorMessage } from "../../api/client";
import { formatCount } from "../../lib/format";
import { proofQuery } from "../queries";
import type { PolicySearch } from "../search";
import type { Policy, PolicyVersion } from "../types";
import { EffectChart } from "./EffectChart";
import { Effects } from "./Effects";
import { Episodes } from "./Episodes";
import { ProofVersions } from "./ProofVersions";
import styles from "./proof.module.css";
import type { PolicyProof } from "./types";

type Props = {
  policy: Policy;
  versions: PolicyVersion[];
  search: PolicySearch;
  navigate: (change: Partial<PolicySearch>) => void;
};

/** The evidence about a policy's effect: over time, on each metric, by group of nodes and by version. */
export function ProofTab(props: Props) {
  const proof = useQuery(proofQuery(props.policy.id, props.search.label));
  if (proof.data !== undefined) return <Proof {...props} proof={proof.data} atMs={proof.dataUpdatedAt} />;
  if (proof.error === null)
    return (
      <p className="muted" role="status">
        Loading the proof.
      </p>
    );
  return (
    <section className="card" role="alert">
      <h2>The proof cannot be shown</h2>
      <p className="body bad">{errorMessage(proof.error)}</p>
    </section>
  );
}

function Proof({ policy, versions, search, navigate, proof, atMs }: Props & { proof: PolicyProof; atMs: number }) {
  const chosen =
    proof.versions.find(({ version }) => version === search.version) ??
    proof.versions.find(({ version }) => version === policy.version) ??
    proof.versions[0];
  if (chosen === undefined) return <Nothing />;
  const primary = chosen.metrics.find((one) => one.primary);
  const metric = chosen.metrics.some((one) => one.metric === search.metric) ? search.metric : primary?.metric;
  const settings = versions.find(({ version }) => version === chosen.version)?.body.proof;
  return (
    <div className={styles.proof}>
      <section className="card" aria-label="Effect over time">
        <h2 className={styles.wrapping}>
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
      <Effects
        title={`Metrics of v${chosen.version}`}
        note={`${formatCount(chosen.episodes, "episode")} on ${formatCount(chosen.nodes, "node")}`}
        first="metric"
        rows={chosen.metrics.map((one) => ({
          name: one.label,
          tag: one.primary ? "primary" : undefined,
          ...one,
        }))}
      />
      <Effects
        title={`Groups of v${chosen.version}`}
        note={`${primary?.label ?? "No primary metric"}; each group has an interval of its own, for orientation`}
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
      <ProofVersions policy={policy} versions={proof.versions} chosen={chosen.version} navigate={navigate} />
      <Episodes version={chosen} settings={settings} paused={proof.paused_at !== null} />
    </div>
  );
}

function Nothing() {
  return (
    <section className="card" aria-label="Effect over time">
      <h2>Effect over time</h2>
      <div className="body">
        <p className={`hatched ${styles.nothing}`}>
          <span>No version of this policy has been compared yet.</span>
        </p>
        <p className="muted">
          While a version is in force in mode enforce, each node holds it out for a short time now and then, with its
          settings restored, and enforces it for as long next to that. The differences show what the version changes.
          How much of the time is held out, and which metrics count, is set under Proof in the form.
        </p>
      </div>
    </section>
  );
}
