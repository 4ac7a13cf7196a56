import { useOutage } from "./BackendBar";
import styles from "./shell.module.css";

/** Placeholder while a page loads; states an outage of the backend or its database. */
export function Pending() {
  const outage = useOutage();
  return (
    <main className={styles.alone} aria-busy="true">
      <title>Coresteer</title>
      <h1>Coresteer</h1>
      <p role="status">
        {outage === null ? (
          <span className="muted">Loading.</span>
        ) : outage.kind === "database" ? (
          "The database is unreachable. This page loads when it is back."
        ) : (
          "The backend does not respond. This page loads when it does."
        )}
      </p>
    </main>
  );
}
