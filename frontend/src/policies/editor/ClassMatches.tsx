import { useDebouncedValue } from "@mantine/hooks";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { api, errorMessage, type Schemas, unwrap } from "../../api/client";
import { Scroll } from "../../components/Scroll";
import { formatCount } from "../../lib/format";
import policyStyles from "../policies.module.css";
import type { PolicyBody, ServiceClasses } from "../types";
import styles from "./classList.module.css";

const TYPING_MS = 350;
const AGAIN_MS = 10_000;
const NAMED = 12;

type Task = Schemas["MatchedTask"];
type Props = { nodeId: number; name: string; spec: ServiceClasses; scope: PolicyBody["scope"] };

/** The processes of a node that match each class of the edited policy, and those that match none. */
export function ClassMatches({ nodeId, name, spec, scope }: Props) {
  const [request] = useDebouncedValue(JSON.stringify({ spec, scope }), TYPING_MS);
  const matches = useQuery({
    queryKey: ["class-matches", nodeId, request],
    placeholderData: keepPreviousData,
    staleTime: 0,
    gcTime: 0,
    refetchInterval: AGAIN_MS,
    queryFn: ({ signal }) =>
      unwrap(
        api.POST("/api/v1/nodes/{node_id}/classes/match", {
          params: { path: { node_id: nodeId } },
          body: JSON.parse(request),
          signal,
        }),
      ),
  });
  if (matches.isError)
    return (
      <p className="bad" role="alert">
        {errorMessage(matches.error)}
      </p>
    );
  const found = matches.data;
  if (found === undefined) return <div className={`${policyStyles.waiting} hatched`} />;
  if (found.at === null)
    return (
      <p className={policyStyles.unknown}>
        <i className="hatched" aria-hidden="true" /> {name} has not reported its processes yet.
      </p>
    );
  return (
    <div className={styles.matches}>
      <Scroll label={`Processes by class, ${name}`}>
        <table className="table">
          <thead>
            <tr>
              <th>class</th>
              <th className="n">processes</th>
              <th>names and PIDs</th>
            </tr>
          </thead>
          <tbody>
            {found.classes.map((one, index) => (
              <tr key={one.name}>
                <td>{one.name}</td>
                <td className="n">{one.tasks.length}</td>
                <td className="wrap">
                  {one.tasks.length > 0 ? <Tasks of={one.tasks} /> : <None of={spec.classes[index]} />}
                </td>
              </tr>
            ))}
            <tr>
              <td className="muted">no class</td>
              <td className="n">{found.unmatched.length}</td>
              <td className="wrap muted">
                <Tasks of={found.unmatched} />
              </td>
            </tr>
          </tbody>
        </table>
      </Scroll>
      {!found.exact && <p className="muted">Only processes with TCP connections are known on this node.</p>}
    </div>
  );
}

function None({ of }: { of: ServiceClasses["classes"][number] | undefined }) {
  const asks = Object.values(of?.match ?? {}).every((list) => list.length === 0);
  return <span className="muted">{asks ? "workers that name this class at the gate" : "none now"}</span>;
}

/** `nginx 1037 1111, postgres 1074`: each name once, with its processes. */
function Tasks({ of }: { of: Task[] }) {
  const byName = new Map<string, Task[]>();
  for (const task of of.slice(0, NAMED)) byName.set(task.name, [...(byName.get(task.name) ?? []), task]);
  return (
    <>
      {[...byName].map(([name, tasks], index) => (
        <span key={name} title={tasks.map(placeOf).join("\n")}>
          {index > 0 && ", "}
          {name} <span className="muted">{tasks.map(({ pid }) => pid).join(" ")}</span>
        </span>
      ))}
      {of.length > NAMED && ` and ${formatCount(of.length - NAMED, "other")}`}
    </>
  );
}

function placeOf({ pid, command, user, unit, cgroup, listens }: Task): string {
  const facts = [command, user && `user ${user}`, unit ?? cgroup, listens.length > 0 && `port ${listens.join(" ")}`];
  return [pid, ...facts].filter(Boolean).join(" · ");
}
