import { useQuery } from "@tanstack/react-query";
import { healthQuery } from "../api/queries";
import { useMe } from "../auth/me";
import styles from "./settings.module.css";

/** Version, database state, API and the signed-in user. */
export function AboutSection() {
  const health = useQuery(healthQuery);
  const me = useMe();
  return (
    <section className="card">
      <h2>About</h2>
      <div className="body">
        <dl className={styles.facts}>
          <dt>Coresteer</dt>
          <dd>{health.data?.version ?? "–"}</dd>
          <dt>Database</dt>
          <dd>{health.isError ? "unreachable" : (health.data?.database ?? "–")}</dd>
          <dt>API</dt>
          <dd>
            <a href="/api/v1/openapi.json">/api/v1/openapi.json</a>
          </dd>
          <dt>Signed in as</dt>
          <dd>
            {me?.username} ({me?.role})
          </dd>
        </dl>
      </div>
    </section>
  );
}
