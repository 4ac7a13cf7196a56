import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { type CSSProperties, useMemo, useState } from "react";
import { ApiProblem, errorMessage } from "../api/client";
import { SimulatedTagOf } from "../components/NodeTags";
import { PageTop } from "../components/PageTop";
import { unbroken } from "../lib/format";
import { armIndex, armName, comparisonsOf, metricOf } from "./arms";
import { kindLabel } from "./experimentSchema";
import styles from "./experiments.module.css";
import { Progress } from "./Progress";
import { experimentQuery, hasEnded, templatesQuery } from "./queries";
import { AuthorsTable } from "./results/AuthorsTable";
import { ComparisonTable, type Row } from "./results/ComparisonTable";
import { CpuHeatmap } from "./results/CpuHeatmap";
import { SHARES } from "./results/cpuMeans";
import { EffectRuler } from "./results/EffectRuler";
import { Discarded, SettingsNow, SpecFacts } from "./results/ExperimentFacts";
import { CompareAndShare, ReportLinks } from "./results/ReportExports";
import { RunsChart } from "./results/RunsChart";
import { SweepChart } from "./results/SweepChart";
import { TuneResults } from "./results/tune/TuneResults";
import type { ExperimentSearch } from "./search";
import type { Comparison, Experiment, Template } from "./types";

const route = getRouteApi("/shell/experiments/$experimentId");
/** The most levels of which each has a sentence of its own. */
const LISTED = 4;

/** One experiment: progress, findings, runs, metrics and report. */
export function ExperimentPage() {
  const { experimentId } = route.useParams();
  const experiment = useQuery(experimentQuery(experimentId));
  if (experiment.data !== undefined) return <LoadedExperiment key={experimentId} experiment={experiment.data} />;
  if (experiment.error === null)
    return (
      <p className="muted" role="status">
        Loading the experiment.
      </p>
    );
  const missing = experiment.error instanceof ApiProblem && experiment.error.status === 404;
  return (
    <section className="card" role="alert">
      <h2>{missing ? "Experiment not found" : "This experiment cannot be shown"}</h2>
      <div className="body">
        <p>{errorMessage(experiment.error)}</p>
        <Link to="/experiments">Back to the experiments</Link>
      </div>
    </section>
  );
}

function LoadedExperiment({ experiment }: { experiment: Experiment }) {
  const search = route.useSearch();
  const go = route.useNavigate();
  const navigate = (change: Partial<ExperimentSearch>) =>
    void go({ search: (before) => ({ ...before, ...change }), replace: true, resetScroll: false });
  const { spec, analysis } = experiment;
  const templates = useQuery({ ...templatesQuery(experiment.node_id), enabled: spec.template !== "" }).data;
  const template = templates?.find(({ slug }) => slug === spec.template);
  const metric = search.metric !== undefined && analysis.metrics.includes(search.metric) ? search.metric : spec.primary;
  const comparisons = useMemo(() => comparisonsOf(experiment), [experiment]);
  const byMetric = (name: string) => comparisons.filter((one) => one.metric === name);
  const arm = search.arm ?? 1;
  const ofArm = comparisons.filter((one) => spec.kind !== "sweep" || armIndex(experiment, one.arm) === arm);
  const figures: Row[] = ofArm.map((comparison) => ({
    key: comparison.metric,
    name: metricOf(experiment, comparison.metric).label,
    comparison,
  }));
  const levels: Row[] = byMetric(metric).map((comparison) => ({
    key: String(armIndex(experiment, comparison.arm)),
    name: armName(experiment, comparison.arm),
    comparison,
  }));
  const pickMetric = (name: string) => navigate({ metric: name === spec.primary ? undefined : name });
  return (
    <>
      <ExperimentTop experiment={experiment} />
      <div className={styles.stack}>
        <ReportLinks
          label="this experiment"
          address={(format, language) =>
            `/api/v1/experiments/${experiment.id}/report?format=${format}&language=${language}`
          }
        />
        <Progress experiment={experiment} />
        <Findings experiment={experiment} comparisons={byMetric(spec.primary)} />
        {experiment.tune && <TuneResults experiment={experiment} tune={experiment.tune} />}
        <div className={styles.row}>
          <NativeSelect
            label="Metric shown below"
            value={metric}
            data={[...new Set([spec.primary, ...analysis.metrics])].map((name) => ({
              value: name,
              label: `${metricOf(experiment, name).label}${name === spec.primary ? ", primary" : ""}`,
            }))}
            onChange={(event) => pickMetric(event.currentTarget.value)}
          />
        </div>
        {spec.kind === "sweep" && (
          <section className="card" aria-label="By factor">
            <h2>
              {metricOf(experiment, metric).label} over {spec.factors.map(({ name }) => name).join(" and ")}
            </h2>
            <div className="body">
              <SweepChart experiment={experiment} metric={metric} paper={template?.paper ?? ""} />
            </div>
          </section>
        )}
        <RunsInOrder experiment={experiment} metric={metric} />
        {spec.kind === "sweep" && levels.length > 0 && (
          <section className="card" aria-label="All levels">
            <h2>
              All levels <small>{metricOf(experiment, metric).label}, against the baseline</small>
            </h2>
            <ComparisonTable
              experiment={experiment}
              label="All levels, table"
              first="level"
              rows={levels}
              chosen={String(arm)}
              onChoose={(key) => navigate({ arm: Number(key) })}
            />
          </section>
        )}
        {figures.length > 0 && (
          <section className="card" aria-label="All metrics">
            <h2>
              All metrics{" "}
              <small>
                {spec.kind === "aa"
                  ? "in the A/A runs: the baseline compared with itself"
                  : `${armName(experiment, ofArm[0]?.arm ?? [])} against ${experiment.arms[0]}`}
              </small>
            </h2>
            <ComparisonTable
              experiment={experiment}
              label="All metrics, table"
              first="figure"
              rows={figures}
              chosen={metric}
              onChoose={pickMetric}
            />
          </section>
        )}
        {template !== undefined && <TemplateNotes experiment={experiment} template={template} />}
        <CpuHeatmap
          experiment={experiment}
          share={SHARES.find((share) => share === search.share) ?? "busy"}
          onShare={(share) => navigate({ share: share === "busy" ? undefined : share })}
        />
        <Discarded experiment={experiment} />
        <CompareAndShare experiment={experiment} />
        <SettingsNow settings={experiment.settings} />
        <SpecFacts experiment={experiment} />
      </div>
    </>
  );
}

function ExperimentTop({ experiment }: { experiment: Experiment }) {
  return (
    <PageTop title={`${experiment.name} · Experiments`}>
      <nav aria-label="Breadcrumb">
        <Link to="/experiments">Experiments</Link> <span className="muted">/</span>
      </nav>
      <h1>{experiment.name}</h1>
      <span className="tag">{kindLabel(experiment.spec.kind)}</span>
      <span>
        <Link to="/nodes/$nodeId" params={{ nodeId: experiment.node_id }}>
          {experiment.node_name}
        </Link>{" "}
        <SimulatedTagOf nodeId={experiment.node_id} />
      </span>
      <span className="muted">by {experiment.created_by}</span>
    </PageTop>
  );
}

/** The findings as sentences, and the primary metric's effects on a ruler. */
function Findings({ experiment, comparisons }: { experiment: Experiment; comparisons: Comparison[] }) {
  const { spec, analysis } = experiment;
  const primary = metricOf(experiment, spec.primary);
  const [hasRun] = useState(!hasEnded(experiment)); // what appears when it ends should move nothing
  const sentences = spec.kind === "sweep" ? Math.min(comparisons.length, LISTED) + 3 : 3;
  const style: CSSProperties & Record<"--sentences", number> = { "--sentences": sentences };
  return (
    <section className="card" aria-label="Findings">
      <h2>
        {hasEnded(experiment) ? "Findings" : "Findings so far"}{" "}
        <small>{primary.label}, relative to the baseline, with 95 % intervals</small>
      </h2>
      <div className="body">
        <p className={styles.sentence}>{unbroken(experiment.findings[0] ?? "")}</p>
        {comparisons.length > 0 && (
          <EffectRuler
            rows={comparisons.map((comparison) => ({
              name: spec.kind === "aa" ? "A/A" : armName(experiment, comparison.arm),
              comparison,
            }))}
            noise={spec.kind === "aa" ? null : (analysis.noise[spec.primary]?.effect ?? null)}
            better={primary.better}
          />
        )}
        <p className={`${styles.sentences} ${hasRun ? styles.reserved : ""}`} style={style}>
          {unbroken(experiment.findings.slice(1).join("\n\n"))}
        </p>
      </div>
    </section>
  );
}

function RunsInOrder({ experiment, metric }: { experiment: Experiment; metric: string }) {
  const [asTable, setAsTable] = useState(false);
  return (
    <section className="card" aria-label="Runs in order">
      <h2>
        Runs in order <small>{metricOf(experiment, metric).label}</small>
        <span className="grow" />
        <button type="button" className="link" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
          as {asTable ? "chart" : "table"}
        </button>
      </h2>
      <div className="body">
        <RunsChart experiment={experiment} metric={metric} asTable={asTable} />
      </div>
    </section>
  );
}

/** The paper's figures beside the measured ones, and how this machine differs from the authors'. */
function TemplateNotes({ experiment, template }: { experiment: Experiment; template: Template }) {
  const differs = [...template.differs, ...experiment.deviations];
  return (
    <>
      {experiment.spec.kind !== "sweep" && experiment.published.length > 0 && (
        <section className="card" aria-label="The authors' figures">
          <h2>
            The authors' figures <small>{template.paper}</small>
          </h2>
          <AuthorsTable rows={experiment.published} experiment={experiment} paper={template.paper} />
        </section>
      )}
      {differs.length > 0 && (
        <section className="card" aria-label="How this experiment differs">
          <h2>{template.paper === "" ? "About this experiment" : "How this experiment differs from the authors'"}</h2>
          <ul className={styles.differs}>
            {differs.map((sentence) => (
              <li key={sentence}>{sentence}</li>
            ))}
          </ul>
        </section>
      )}
    </>
  );
}
