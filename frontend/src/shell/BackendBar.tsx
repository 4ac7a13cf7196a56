import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { version } from "../../package.json";
import { ApiProblem } from "../api/client";
import { healthQuery, queryClient } from "../api/queries";
import { clock } from "../lib/time";
import styles from "./shell.module.css";

type Outage = { kind: "backend" | "database"; since: number };

/** The part that does not respond (backend or database) and since when; null while both respond. */
export function useOutage(): Outage | null {
  const health = useQuery(healthQuery);
  const kind = !health.isError
    ? health.data === undefined || health.data.database === "ok"
      ? null
      : "database"
    : health.error instanceof ApiProblem && health.error.isDatabaseUnreachable
      ? "database"
      : "backend";
  const outage = useRef<Outage | null>(null);
  if (kind === null) outage.current = null;
  else if (outage.current?.kind !== kind) outage.current = { kind, since: Date.now() };
  return outage.current;
}

/** What the backend says of itself that a person should know. */
function useNotice(): { reasons: string; isOtherVersion: boolean; version: string | undefined } {
  const health = useQuery(healthQuery).data;
  const reasons = (health?.reasons ?? []).map((reason) => reason.detail).join(" ");
  return { reasons, isOtherVersion: health !== undefined && health.version !== version, version: health?.version };
}

/**
 * States an outage of the backend or its database, an upgrade, or why the backend cannot do all of its work. During an outage the
 * last loaded data stays on the page, marked as stale.
 */
export function BackendBar() {
  const outage = useOutage();
  const notice = useNotice();
  const kind = outage?.kind;
  useEffect(() => {
    if (kind === undefined) return;
    document.documentElement.dataset.stale = kind;
    return () => {
      delete document.documentElement.dataset.stale;
      void queryClient.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "health" });
    };
  }, [kind]);
  if (outage === null) {
    if (notice.reasons === "" && !notice.isOtherVersion) return null;
    return (
      <div className={styles.bar} role="status">
        <span className="dot warn" />
        {notice.reasons}
        {notice.isOtherVersion && (
          <>
            {` The backend is version ${notice.version}, this page version ${version}.`}
            <button type="button" onClick={() => location.reload()}>
              Reload
            </button>
          </>
        )}
      </div>
    );
  }
  const since = clock(outage.since);
  return (
    <div className={styles.bar} role="status">
      <span className="dot warn" />
      {outage.kind === "backend"
        ? `The backend has not responded since ${since}; retrying. The data shown is older.`
        : `The database has been unreachable since ${since}; retrying. Live data continues; history and changes are unavailable.`}
    </div>
  );
}
