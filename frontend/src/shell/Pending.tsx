import { useTrouble } from "./BackendBar";
import styles from "./shell.module.css";

/** Stands while a page has not come up, and says what it waits for. */
export function Pending() {
  const trouble = useTrouble();
  return (
    <main className={styles.alone} aria-busy="true">
      <title>Coresteer</title>
      <h1>Coresteer</h1>
      <p role="status">
        {trouble === null ? (
          <span className="muted">Loading.</span>
        ) : trouble.kind === "database" ? (
          "The backend's database is away. This page comes up as soon as it is back."
        ) : (
          "The backend does not answer. This page comes up as soon as it does."
        )}
      </p>
    </main>
  );
}
