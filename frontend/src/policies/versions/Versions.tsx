import { useQuery } from "@tanstack/react-query";
import { errorMessage } from "../../api/client";
import { Moment } from "../../components/Moment";
import { ActionsHeading } from "../../components/RowsTable";
import { Scroll } from "../../components/Scroll";
import styles from "../policies.module.css";
import { diffQuery } from "../queries";
import type { PolicySearch } from "../search";
import type { Policy, PolicyVersion } from "../types";
import { diffLines } from "./diff";

type Props = {
  policy: Policy;
  versions: PolicyVersion[];
  search: PolicySearch;
  navigate: (change: Partial<PolicySearch>) => void;
};

/** All versions, newest first, and the differences of two. */
export function Versions({ policy, versions, search, navigate }: Props) {
  const to = search.version ?? versions[0]?.version ?? policy.version;
  const from = search.diff ?? to - 1;
  return (
    <div className={styles.form}>
      <VersionList policy={policy} versions={versions} from={from} to={to} navigate={navigate} />
      <Difference policyId={policy.id} from={from} to={to} />
    </div>
  );
}

type ListProps = Omit<Props, "search"> & { from: number; to: number };

/** Table of versions with a choice of two to compare. */
function VersionList({ policy, versions, from, to, navigate }: ListProps) {
  return (
    <section className="card">
      <h2>
        Versions <small>versions are immutable</small>
      </h2>
      <Scroll label="Versions">
        <table className="table">
          <thead>
            <tr>
              <th>compare</th>
              <th>with</th>
              <th className="n">version</th>
              <th>mode</th>
              <th>note</th>
              <th>created</th>
              <ActionsHeading />
            </tr>
          </thead>
          <tbody>
            {versions.map(({ version, body, note, created_at, created_by }) => (
              <tr key={version}>
                <td>
                  <input
                    type="radio"
                    name="version"
                    aria-label={`Compare version ${version}`}
                    checked={version === to}
                    onChange={() => navigate({ version })}
                  />
                </td>
                <td>
                  <input
                    type="radio"
                    name="diff"
                    aria-label={`Compare with version ${version}`}
                    checked={version === from}
                    onChange={() => navigate({ diff: version })}
                  />
                </td>
                <td className="n">
                  {version}
                  {version === policy.version && (
                    <>
                      {" "}
                      <span className={`tag ${policy.enabled ? "ok" : ""}`}>
                        {policy.enabled ? "in force" : "when enabled"}
                      </span>
                    </>
                  )}
                </td>
                <td>{body.mode}</td>
                <td className="wrap">{note}</td>
                <td>
                  <Moment at={created_at} /> <span className="muted">by {created_by}</span>
                </td>
                <td>
                  <button
                    type="button"
                    className="link"
                    onClick={() => navigate({ tab: "edit", version, diff: undefined })}
                  >
                    edit from v{version}
                  </button>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </Scroll>
    </section>
  );
}

/** The fields in which two versions differ. */
function Difference({ policyId, from, to }: { policyId: number; from: number; to: number }) {
  const diff = useQuery(diffQuery(policyId, from, to));
  return (
    <section className="card" aria-label="Difference" aria-live="polite">
      <h2>
        {from > 0 && from !== to ? `From version ${from} to version ${to}` : `Version ${to}`}
        <small>was → becomes</small>
      </h2>
      {from <= 0 ? (
        <p className="body muted">The first version has no predecessor.</p>
      ) : from === to ? (
        <p className="body muted">Choose two different versions to compare.</p>
      ) : diff.isError ? (
        <p className="body bad" role="alert">
          {errorMessage(diff.error)}
        </p>
      ) : diff.data === undefined ? (
        <p className="body muted">Comparing.</p>
      ) : diff.data.length === 0 ? (
        <p className="body muted">The versions are identical.</p>
      ) : (
        <Scroll label="Differences">
          <table className="table">
            <thead>
              <tr>
                <th>field</th>
                <th>was</th>
                <th>becomes</th>
              </tr>
            </thead>
            <tbody>
              {diffLines(diff.data).map((line) => (
                <tr key={line.path}>
                  <td title={line.path}>{line.name}</td>
                  <td className="wrap">
                    {line.was === null ? <i className="muted">empty</i> : <code>{line.was}</code>}
                  </td>
                  <td className="wrap">
                    {line.becomes === null ? <i className="muted">empty</i> : <code>{line.becomes}</code>}
                  </td>
                </tr>
              ))}
            </tbody>
          </table>
        </Scroll>
      )}
    </section>
  );
}
