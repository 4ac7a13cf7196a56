import { NativeSelect } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useMemo, useState } from "react";
import { ApiProblem, sentenceOf } from "../api/client";
import { SimulatedTagOf } from "../shell/NodeTags";
import { PageTop } from "../shell/PageTop";
import { ComparisonTable, type Row } from "./ComparisonTable";
import { CpuHeat } from "./CpuHeat";
import { SHARES } from "./cpus";
import { Exports } from "./Exports";
import classes from "./experiments.module.css";
import { Discarded, SettingsNow, SpecFacts } from "./Facts";
import { Progress } from "./Progress";
import { experimentQuery, isOver, templatesQuery } from "./queries";
import { Ruler } from "./Ruler";
import { RunsChart } from "./RunsChart";
import { Authors, Sweep } from "./Sweep";
import type { ExperimentSearch } from "./search";
import type { Experiment } from "./types";
import { armIndex, armName, comparisonsOf, KINDS, metricOf } from "./words";

const route = getRouteApi("/shell/experiments/$experimentId");

/** One experiment: how far it is, what was found, every run and every figure, and its report. */
export function ExperimentPage() {
  const { experimentId } = route.useParams();
  const experiment = useQuery(experimentQuery(experimentId));
  if (experiment.data !== undefined) return <Known experiment={experiment.data} />;
  if (experiment.error === null)
    return (
      <p className="muted" role="status">
        Reading the experiment.
      </p>
    );
  const missing = experiment.error instanceof ApiProblem && experiment.error.status === 404;
  return (
    <section className="card" role="alert">
      <h2>{missing ? "There is no such experiment" : "This experiment cannot be shown"}</h2>
      <div className="body">
        <p>{sentenceOf(experiment.error)}</p>
        <Link to="/experiments">Back to the experiments</Link>
      </div>
    </section>
  );
}

function Known({ experiment }: { experiment: Experiment }) {
  const search = route.useSearch();
  const go = route.useNavigate();
  const navigate = (change: Partial<ExperimentSearch>) =>
    void go({ search: (before) => ({ ...before, ...change }), replace: true, resetScroll: false });
  const [asTable, setAsTable] = useState(false);
  const { spec, analysis } = experiment;
  const templates = useQuery({ ...templatesQuery(experiment.node_id), enabled: spec.template !== "" }).data;
  const template = templates?.find(({ slug }) => slug === spec.template);
  const metric = search.metric !== undefined && analysis.metrics.includes(search.metric) ? search.metric : spec.primary;
  const comparisons = useMemo(() => comparisonsOf(experiment), [experiment]);
  const byMetric = (name: string) => comparisons.filter((one) => one.metric === name);
  const compared = byMetric(spec.primary);
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
  const primary = metricOf(experiment, spec.primary);
  const pickMetric = (name: string) => navigate({ metric: name === spec.primary ? undefined : name });
  return (
    <>
      <PageTop title={`${experiment.name} · Experiments`}>
        <nav aria-label="Breadcrumb">
          <Link to="/experiments">Experiments</Link> <span className="muted">/</span>
        </nav>
        <h1>{experiment.name}</h1>
        <span className="tag">{KINDS[spec.kind].label}</span>
        <span>
          <Link to="/nodes/$nodeId" params={{ nodeId: experiment.node_id }}>
            {experiment.node_name}
          </Link>{" "}
          <SimulatedTagOf nodeId={experiment.node_id} />
        </span>
        <span className="muted">by {experiment.created_by}</span>
      </PageTop>
      <div className={classes.stack}>
        <Progress experiment={experiment} />
        <section className="card" aria-label="What was found">
          <h2>
            {isOver(experiment) ? "What was found" : "What the runs say so far"}{" "}
            <small>{primary.label}, relative to the baseline, with 95 % intervals</small>
          </h2>
          <div className="body">
            <p className={classes.sentence}>{experiment.findings[0]}</p>
            {compared.length > 0 && (
              <Ruler
                rows={compared.map((comparison) => ({
                  name: spec.kind === "aa" ? "against itself" : armName(experiment, comparison.arm),
                  comparison,
                }))}
                noise={spec.kind === "aa" ? null : (analysis.noise[spec.primary]?.effect ?? null)}
                better={primary.better}
              />
            )}
            {experiment.findings.slice(1).map((sentence) => (
              <p key={sentence}>{sentence}</p>
            ))}
          </div>
        </section>
        <div className={classes.row}>
          <NativeSelect
            label="Figure looked at below"
            value={metric}
            data={[...new Set([spec.primary, ...analysis.metrics])].map((name) => ({
              value: name,
              label: `${metricOf(experiment, name).label}${name === spec.primary ? ", the one that decides" : ""}`,
            }))}
            onChange={(event) => pickMetric(event.currentTarget.value)}
          />
        </div>
        {spec.kind === "sweep" && (
          <section className="card" aria-label="Over what is varied">
            <h2>
              {metricOf(experiment, metric).label} over {spec.factors.map(({ name }) => name).join(" and ")}
            </h2>
            <div className="body">
              <Sweep experiment={experiment} metric={metric} template={template} />
            </div>
          </section>
        )}
        <section className="card" aria-label="Runs in order">
          <h2>
            Runs in order <small>{metricOf(experiment, metric).label}</small>
            <span className="grow" />
            <button type="button" className="link" aria-pressed={asTable} onClick={() => setAsTable(!asTable)}>
              view as {asTable ? "picture" : "table"}
            </button>
          </h2>
          <div className="body">
            <RunsChart experiment={experiment} metric={metric} asTable={asTable} />
          </div>
        </section>
        {spec.kind === "sweep" && levels.length > 0 && (
          <section className="card" aria-label="Every level">
            <h2>
              Every level <small>{metricOf(experiment, metric).label}, against the baseline</small>
            </h2>
            <ComparisonTable
              experiment={experiment}
              label="Every level, table"
              first="level"
              rows={levels}
              chosen={String(arm)}
              onChoose={(key) => navigate({ arm: Number(key) })}
            />
          </section>
        )}
        {figures.length > 0 && (
          <section className="card" aria-label="Every figure">
            <h2>
              Every figure{" "}
              <small>
                {spec.kind === "aa"
                  ? "of the node against itself"
                  : `${armName(experiment, ofArm[0]?.arm ?? [])} against ${experiment.arms[0]}`}
              </small>
            </h2>
            <ComparisonTable
              experiment={experiment}
              label="Every figure, table"
              first="figure"
              rows={figures}
              chosen={metric}
              onChoose={pickMetric}
            />
          </section>
        )}
        {spec.kind !== "sweep" && template !== undefined && template.authors.length > 0 && (
          <section className="card" aria-label="The authors' figures">
            <h2>
              The authors' figures <small>{template.paper}</small>
            </h2>
            <Authors rows={template.authors} experiment={experiment} paper={template.paper} />
          </section>
        )}
        {template !== undefined && template.differs.length > 0 && (
          <section className="card" aria-label="How this machine differs">
            <h2>How this machine differs from the authors'</h2>
            <ul className={classes.differs}>
              {template.differs.map((sentence) => (
                <li key={sentence}>{sentence}</li>
              ))}
            </ul>
          </section>
        )}
        <CpuHeat
          experiment={experiment}
          share={SHARES.find((share) => share === search.share) ?? "busy"}
          onShare={(share) => navigate({ share: share === "busy" ? undefined : share })}
        />
        <Discarded experiment={experiment} />
        <Exports experiment={experiment} />
        <SettingsNow settings={experiment.settings} />
        <SpecFacts experiment={experiment} />
      </div>
    </>
  );
}
