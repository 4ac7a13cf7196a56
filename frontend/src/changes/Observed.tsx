import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { Scroll } from "../components/Scroll";
import { Unknown } from "../components/Unknown";
import {
  differenceOf,
  figureLabel,
  figureValue,
  headlines,
  type Observation,
  type ObservedFigure,
  usualText,
  windowText,
} from "./observation";
import styles from "./observed.module.css";

type Change = Schemas["Change"];

const REFRESH_MS = 5_000;
const NOT_PROOF = "Observed, not proof: anything else may have changed in the same minutes. Test A/B tells.";

/** A change's observation: the stored one, else what is known so far, every 5 s until the 2 minutes are over. */
function useObservation(change: Change): { observation: Observation | undefined; error: Error | null } {
  const { data, error } = useQuery<Observation>({
    queryKey: ["observation", change.id, change.state],
    enabled: change.observation === null && change.applied_at !== null,
    refetchInterval: ({ state }) => (state.data?.is_complete ? false : REFRESH_MS),
    queryFn: ({ signal }) =>
      unwrap(
        api.GET("/api/v1/changes/{change_id}/observation", { params: { path: { change_id: change.id } }, signal }),
      ),
  });
  return { observation: change.observation ?? data, error };
}

function Difference({ figure }: { figure: ObservedFigure }) {
  const difference = differenceOf(figure);
  if (difference === null) return <Unknown why="Not on record before or after the change." />;
  return <span className={difference.tone === "moved" ? styles.moved : difference.tone}>{difference.text}</span>;
}

/** The form of an experiment that compares a change's values with those before it. */
export function TestLink({ change }: { change: Change }) {
  return (
    <Link
      to="/experiments/new"
      search={{ node: change.node_id, template: "own", change: change.id }}
      title="Compare the values before and after this change in randomized order"
    >
      Test A/B
    </Link>
  );
}

/** A few figures before and after an unconfirmed change, each in a column, with how much of the 2 minutes has passed. */
export function ObservedSoFar({ change, className }: { change: Change; className?: string }) {
  const { observation: data } = useObservation(change);
  if (data === undefined) return null;
  return (
    <>
      {headlines(data.figures).map((figure) => (
        <span key={figure.metric + figure.subject} className={className} title={NOT_PROOF}>
          <span className="muted">{figureLabel(figure)}</span>
          <span>
            <span className={`muted ${styles.before}`}>{figureValue(figure.metric, figure.before)} → </span>
            <b>{figureValue(figure.metric, figure.after)}</b> <Difference figure={figure} />
          </span>
        </span>
      ))}
      <span className={`muted ${className}`} title={NOT_PROOF}>
        {data.figures.length > 0
          ? windowText(data)
              .split(", ")
              .map((part) => <span key={part}>{part}</span>)
          : data.missing}
      </span>
    </>
  );
}

/** The first figure that differs after a change: `IRQ 41, interrupts ▼ 44 %`; the time on record without any. */
export function ObservedInBrief({ change }: { change: Change }) {
  const { observation: data } = useObservation(change);
  if (data === undefined) return null;
  const figures = headlines(data.figures);
  const figure = figures.find(({ has_moved }) => has_moved) ?? figures[0];
  if (figure === undefined) return <span className="muted">{data.missing}</span>;
  return (
    <>
      <span className="muted">{figureLabel(figure)}</span> <Difference figure={figure} />
    </>
  );
}

/** Every figure in the 2 minutes before and after a change, next to how much it usually differs. */
export function ObservedTable({ change }: { change: Change }) {
  const { observation, error } = useObservation(change);
  if (change.applied_at === null || change.experiment_id !== null) return null;
  return (
    <section className={styles.observed} aria-label="Before and after">
      <h3>
        Before and after <span className="muted">observed, not proof</span> <TestLink change={change} />
      </h3>
      {error !== null && <p className="bad">{errorMessage(error)}</p>}
      {observation !== undefined && <Comparison observation={observation} />}
    </section>
  );
}

function Comparison({ observation }: { observation: Observation }) {
  const { figures, missing, other_changes, is_complete } = observation;
  return (
    <>
      {figures.length > 0 && (
        <Scroll label="Figures before and after">
          <table className="table">
            <thead>
              <tr>
                <th>figure</th>
                <th>before</th>
                <th>after</th>
                <th>difference</th>
                <th>usual, 95 %</th>
              </tr>
            </thead>
            <tbody>
              {figures.map((figure) => (
                <tr key={figure.metric + figure.subject}>
                  <td className="wrap">{figureLabel(figure)}</td>
                  <Value figure={figure} of="before" />
                  <Value figure={figure} of="after" />
                  <td>
                    <Difference figure={figure} />
                  </td>
                  <td className="muted">
                    {usualText(figure) ?? <Unknown why={missing || "Too little of the hour before is on record."} />}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
      <p className="muted">
        {figures.length > 0 && `Means of ${windowText(observation)}${is_complete ? "" : " so far"}. `}
        {missing}{" "}
        {other_changes > 0 &&
          `${other_changes} other ${other_changes === 1 ? "change was" : "changes were"} applied in the same minutes.`}
      </p>
    </>
  );
}

function Value({ figure, of }: { figure: ObservedFigure; of: "before" | "after" }) {
  const value = figure[of];
  return (
    <td className={of === "before" ? "muted" : undefined}>
      {value === null ? (
        <Unknown why="Not on record." />
      ) : of === "after" ? (
        <b>{figureValue(figure.metric, value)}</b>
      ) : (
        figureValue(figure.metric, value)
      )}
    </td>
  );
}
