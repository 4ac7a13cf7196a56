import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
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

/** The backend's version if it is another one than when the page was loaded; else null. */
function useUpgrade(): string | null {
  const version = useQuery(healthQuery).data?.version;
  const loaded = useRef(version);
  loaded.current ??= version;
  return version === loaded.current ? null : (version ?? null);
}

/**
 * States an outage of the backend or its database, an upgrade, or why the backend cannot do all of its work. During an outage the
 * last loaded data stays on the page, marked as stale.
 */
export function BackendBar() {
  const outage = useOutage();
  const reasons = useQuery(healthQuery).data?.reasons ?? [];
  const upgraded = useUpgrade();
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
    if (upgraded !== null)
      return (
        <div className={styles.bar} role="status">
          <span className="dot warn" />
          The backend is version {upgraded} now; this page is of another one.
          <button type="button" onClick={() => location.reload()}>
            Reload
          </button>
        </div>
      );
    if (reasons.length === 0) return null;
    return (
      <div className={styles.bar} role="status">
        <span className="dot warn" />
        {reasons.map((reason) => reason.detail).join(" ")}
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
