import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { ApiProblem } from "../api/client";
import { healthQuery, queryClient } from "../api/queries";
import { clock } from "../lib/time";
import styles from "./shell.module.css";

type Trouble = { kind: "backend" | "database"; since: number };

/** Which part does not answer and since when; null while all is well. */
export function useTrouble(): Trouble | null {
  const health = useQuery(healthQuery);
  const kind = !health.isError
    ? health.data === undefined || health.data.database === "ok"
      ? null
      : "database"
    : health.error instanceof ApiProblem && health.error.databaseAway
      ? "database"
      : "backend";
  const trouble = useRef<Trouble | null>(null);
  if (kind === null) trouble.current = null;
  else if (trouble.current?.kind !== kind) trouble.current = { kind, since: Date.now() };
  return trouble.current;
}

/** Says calmly that the backend or its database is away; what was read last stays on the page, marked as old. */
export function BackendBar() {
  const trouble = useTrouble();
  const kind = trouble?.kind;
  useEffect(() => {
    if (kind === undefined) return;
    document.documentElement.dataset.stale = kind;
    return () => {
      delete document.documentElement.dataset.stale;
      void queryClient.invalidateQueries({ predicate: (query) => query.queryKey[0] !== "health" });
    };
  }, [kind]);
  if (trouble === null) return null;
  const since = clock(trouble.since);
  return (
    <div className={styles.bar} role="status">
      <span className="dot warn" />
      {trouble.kind === "backend"
        ? `The backend does not answer since ${since}; retrying. What is shown is from before.`
        : `The backend's database is away since ${since}; retrying. Live figures go on, history and changes wait.`}
    </div>
  );
}
