import { Button } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { getRouteApi, Link } from "@tanstack/react-router";
import { errorMessage } from "../api/client";
import { Moment } from "../components/Moment";
import { PageTop } from "../components/PageTop";
import { Scroll } from "../components/Scroll";
import experimentsStyles from "../experiments/experiments.module.css";
import { duration, remainingText } from "../lib/format";
import { specText } from "./format";
import { studiesQuery } from "./queries";
import { STATE_TONES } from "./states";
import type { Summary } from "./types";

const route = getRouteApi("/shell/simulations");

/** All coscheduling studies, newest first. */
export function StudiesPage() {
  const search = route.useSearch();
  const navigate = route.useNavigate();
  const studies = useQuery(studiesQuery(search.older));
  const page = studies.data;
  const none = page?.simulations.length === 0 && search.older === undefined;
  return (
    <>
      <PageTop title="Coscheduling studies">
        <h1>Coscheduling studies</h1>
      </PageTop>
      <div className={experimentsStyles.filter}>
        <span className="muted">{WHAT_IT_IS}</span>
        <span className="grow" />
        <Button variant="filled" renderRoot={(props) => <Link {...props} to="/simulations/new" />}>
          New study
        </Button>
      </div>
      {studies.isError && (
        <p className="bad" role="alert">
          {errorMessage(studies.error)}
        </p>
      )}
      {page === undefined && !studies.isError && <p className="muted">Loading studies.</p>}
      {page?.unavailable_because != null && <p className="warn">{page.unavailable_because}</p>}
      {none && <NoStudies />}
      {page !== undefined && !none && (
        <section className="card" aria-busy={studies.isPlaceholderData}>
          <h2>
            Studies <small>newest first; one runs at a time</small>
          </h2>
          <List studies={page.simulations} />
          {(page.older !== null || search.older !== undefined) && (
            <div className={experimentsStyles.pager}>
              <Button
                disabled={search.older === undefined}
                onClick={() => void navigate({ search: { older: undefined } })}
              >
                Newest
              </Button>
              <Button
                disabled={page.older === null}
                onClick={() => void navigate({ search: { older: page.older ?? undefined } })}
              >
                Older
              </Button>
            </div>
          )}
        </section>
      )}
    </>
  );
}

const WHAT_IT_IS =
  "Simulates parallel jobs on a cluster under coscheduling schemes. It does not use the fleet, and has nothing to do with simulated nodes.";

function NoStudies() {
  return (
    <section className={`card ${experimentsStyles.empty}`}>
      <h2>There is no study yet</h2>
      <div className="body">
        <p>
          Processes of a parallel job wait for messages of processes on other nodes. Coscheduling schemes decide what a
          waiting process does and who runs when a message arrives; with reordering (+RO), the process whose peer is
          predicted to run soonest goes first. A study simulates schemes on the same jobs and compares response times
          and the use of system time with the statements of Yu, Azougagh, Kim and Maeng.
        </p>
        <p>
          <Link to="/simulations/new">Start the authors' study</Link> or a smaller one of your choice.
        </p>
      </div>
    </section>
  );
}

function List({ studies }: { studies: Summary[] }) {
  return (
    <Scroll label="Studies">
      <table className="table">
        <thead>
          <tr>
            <th>study</th>
            <th>state</th>
            <th className={experimentsStyles.found}>what</th>
            <th className="n">runs</th>
            <th>started</th>
            <th className="n">duration</th>
            <th>by</th>
          </tr>
        </thead>
        <tbody>
          {studies.map((one) => (
            <tr key={one.id}>
              <td>
                <Link to="/simulations/$studyId" params={{ studyId: one.id }}>
                  Study {one.id}
                </Link>
              </td>
              <td>
                <span className={`dot ${STATE_TONES[one.state]}`} aria-hidden="true" />
                {one.state}
              </td>
              <td className={`wrap ${experimentsStyles.found}`}>
                {specText(one.spec)}
                {one.sentence !== "" && <span className="muted"> {one.sentence}</span>}
              </td>
              <td className="n">
                {one.runs_done}
                <span className="muted"> / {one.runs_planned}</span>
              </td>
              <td>
                <Moment at={one.created_at} />
              </td>
              <td className="n">
                {one.ended_at === null
                  ? remainingText(one.remaining_s)
                  : duration((Date.parse(one.ended_at) - Date.parse(one.created_at)) / 1000)}
              </td>
              <td>{one.created_by}</td>
            </tr>
          ))}
        </tbody>
      </table>
    </Scroll>
  );
}
