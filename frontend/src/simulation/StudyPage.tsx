import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { useId } from "react";
import { ApiProblem, errorMessage } from "../api/client";
import { PageTop } from "../components/PageTop";
import { Segments } from "../components/Segments";
import experimentsStyles from "../experiments/experiments.module.css";
import { ReportLinks } from "../experiments/results/ReportExports";
import { specText } from "./format";
import { studyQuery } from "./queries";
import { CellsTable } from "./results/CellsTable";
import { charted, PART_LABELS, PARTS } from "./results/charted";
import { Facts } from "./results/Facts";
import { PartIcon } from "./results/PartFill";
import styles from "./results/results.module.css";
import { ResponseChart, SystemChart } from "./results/SchemeCharts";
import { SensitivityTable } from "./results/SensitivityTable";
import { VerdictTable } from "./results/VerdictTable";
import { StudyProgress } from "./StudyProgress";
import { schemesText } from "./schemes";
import type { StudySearch } from "./search";
import type { Pattern, Study } from "./types";

const route = getRouteApi("/shell/simulations/$studyId");

/** One coscheduling study: progress, results next to the authors' statements, and report. */
export function StudyPage() {
  const { studyId } = route.useParams();
  const study = useQuery(studyQuery(studyId));
  if (study.data !== undefined) return <LoadedStudy key={studyId} study={study.data} />;
  if (study.error === null)
    return (
      <p className="muted" role="status">
        Loading the study.
      </p>
    );
  const missing = study.error instanceof ApiProblem && study.error.status === 404;
  return (
    <section className="card" role="alert">
      <h2>{missing ? "Study not found" : "This study cannot be shown"}</h2>
      <div className="body">
        <p>{errorMessage(study.error)}</p>
        <Link to="/simulations">Back to the studies</Link>
      </div>
    </section>
  );
}

function LoadedStudy({ study }: { study: Study }) {
  const { cells, verdicts, sensitivities } = study;
  const runs = study.state === "running";
  return (
    <>
      <PageTop title={`Study ${study.id}`}>
        <nav aria-label="Breadcrumb">
          <Link to="/simulations">Studies</Link> <span className="muted">/</span>
        </nav>
        <h1>Study {study.id}</h1>
      </PageTop>
      <div className={experimentsStyles.stack}>
        <p className={`muted ${styles.line}`}>{specText(study.spec)}</p>
        {cells.length > 0 && !runs && (
          <ReportLinks
            label="this study"
            address={(format, language) =>
              `/api/v1/simulations/${study.id}/report?format=${format}&language=${language}`
            }
          />
        )}
        <StudyProgress study={study} />
        {cells.length === 0 && (
          <p className={`muted ${styles.line}`}>
            {runs
              ? "Results appear as runs are done. The first study after an upgrade compiles the engine, which takes a minute."
              : "No run was completed."}
          </p>
        )}
        {verdicts.length > 0 && (
          <section className="card" aria-label="The authors' statements">
            <h2>
              The authors' statements <small>Yu, Azougagh, Kim and Maeng, next to this study</small>
            </h2>
            <VerdictTable verdicts={verdicts} />
          </section>
        )}
        {cells.length > 0 && (
          <>
            <Charts study={study} />
            <section className="card" aria-label="Every cell">
              <h2>
                Every cell <small>means over the seeds, shares of system time{runs && ", so far"}</small>
              </h2>
              <CellsTable cells={cells} />
            </section>
            <section className="card" aria-label="Sensitivity">
              <h2>
                Sensitivity{" "}
                <small>does the sign of the effect depend on a constant that the paper does not state?</small>
              </h2>
              {sensitivities.length > 0 ? (
                <SensitivityTable study={study} />
              ) : (
                <div className="body">
                  <p className="muted">{whyNoSensitivity(study)}</p>
                </div>
              )}
            </section>
          </>
        )}
        <Facts study={study} />
      </div>
    </>
  );
}

function whyNoSensitivity({ spec, state }: Study): string {
  if (!spec.sensitivity) return "Not simulated. “Run again” offers it as an option.";
  return state === "running"
    ? "It appears when the study is done."
    : "No scheme was simulated with and without reordering.";
}

/** Response time and system time of all schemes, for one pattern and imbalance. */
function Charts({ study: { spec, cells } }: { study: Study }) {
  const search = route.useSearch();
  const go = route.useNavigate();
  const id = useId();
  // the longest runs come first, so the first pattern may have no result yet
  const first = spec.patterns.find((one) => cells.some(({ cell }) => cell.pattern === one)) ?? "nn";
  const least = spec.imbalances.find((v) => cells.some(({ cell }) => cell.imbalance === v)) ?? 0;
  const pattern = search.pattern !== undefined && spec.patterns.includes(search.pattern) ? search.pattern : first;
  const imbalance = search.v !== undefined && spec.imbalances.includes(search.v) ? search.v : least;
  const navigate = (change: Partial<StudySearch>) =>
    void go({ search: (before) => ({ ...before, ...change }), replace: true, resetScroll: false });
  const groups = charted(cells, pattern, imbalance);
  return (
    <section className="card" aria-label="Response time and system time">
      <h2 className={styles.wrapping}>
        Response time and system time <span className="grow" />
        {spec.patterns.length > 1 && (
          <Segments<Pattern>
            label="Pattern"
            value={pattern}
            options={spec.patterns.map((value) => ({ value, label: value.toUpperCase() }))}
            onChange={(value) => navigate({ pattern: value === first ? undefined : value })}
          />
        )}
        {spec.imbalances.length > 1 && (
          <Segments
            label="Imbalance v"
            value={imbalance}
            options={spec.imbalances.map((value) => ({ value, label: `v ${value}` }))}
            onChange={(value) => navigate({ v: value === least ? undefined : value })}
          />
        )}
      </h2>
      <div className={`body ${experimentsStyles.stack}`}>
        {groups.length === 0 && <p className="muted">No run of this pattern and imbalance is done yet.</p>}
        {groups.map(({ jobType, cells: shown }) => {
          const of = `${pattern.toUpperCase()}, ${jobType.toUpperCase()}, v ${imbalance}`;
          return (
            <div key={jobType} className={styles.charts}>
              <figure>
                <h3>
                  {jobType.toUpperCase()} <small>mean response time, s, with 95 % interval; an arrow: it goes on</small>
                </h3>
                <ResponseChart cells={shown} of={of} />
              </figure>
              <figure>
                <h3>
                  {jobType.toUpperCase()} <small>system time, node-seconds</small>
                </h3>
                <SystemChart cells={shown} of={of} />
              </figure>
            </div>
          );
        })}
      </div>
      <p className={`muted ${styles.names}`}>{schemesText(spec.schemes)}</p>
      <ul className={styles.legend} aria-label="Parts of system time">
        {PARTS.map((part) => (
          <li key={part}>
            <PartIcon id={`${id}-${part}`} part={part} /> {PART_LABELS[part]}
          </li>
        ))}
      </ul>
    </section>
  );
}
