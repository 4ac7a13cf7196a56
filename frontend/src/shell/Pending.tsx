import { useOutage } from "./BackendBar";
import styles from "./shell.module.css";

/** Placeholder while Coresteer loads; states an outage of the backend or its database. */
export function Pending() {
  return (
    <main className={styles.alone} aria-busy="true">
      <title>Coresteer</title>
      <h1>Coresteer</h1>
      <Status />
    </main>
  );
}

/** The same within the frame, which has the landmark and the heading. */
export function PagePending() {
  return (
    <div className={styles.alone} aria-busy="true">
      <Status />
    </div>
  );
}

function Status() {
  const outage = useOutage();
  return (
    <p role="status">
      {outage === null ? (
        <span className="muted">Loading.</span>
      ) : outage.kind === "database" ? (
        "The database is unreachable. This page loads when it is back."
      ) : (
        "The backend does not respond. This page loads when it does."
      )}
    </p>
  );
}
