import { Button } from "@mantine/core";
import { Link, useRouter } from "@tanstack/react-router";
import { useEffect } from "react";
import { ApiProblem, sentenceOf } from "../api/client";
import styles from "./shell.module.css";

const RETRY_MS = 3_000;

/** Shown instead of a page that could not be drawn: what went wrong, and what to do. */
export function ErrorPage({ error }: { error: unknown }) {
  const router = useRouter();
  const transient = error instanceof ApiProblem && (error.away || error.databaseAway);
  useEffect(() => {
    if (!transient) return;
    const timer = setInterval(() => void router.invalidate(), RETRY_MS);
    return () => clearInterval(timer);
  }, [transient, router]);
  return (
    <main className={styles.alone}>
      <title>Error · Coresteer</title>
      <h1>{transient ? "Waiting for the backend" : "This page stopped"}</h1>
      <p role="alert">{sentenceOf(error)}</p>
      <p className="muted">
        {transient
          ? "It is asked again every 3 seconds; nothing needs to be done here."
          : "Nothing was changed on any node by this. Try again; if it stays, reload the page and tell your administrator the sentence above."}
      </p>
      <div className={styles.row}>
        <Button variant="filled" onClick={() => void router.invalidate()}>
          Try again
        </Button>
        <Button onClick={() => location.reload()}>Reload the page</Button>
        <Link to="/fleet">Go to the fleet</Link>
      </div>
    </main>
  );
}

/** Shown for an address that leads nowhere. */
export function NotFoundPage() {
  return (
    <main className={styles.alone}>
      <title>Not found · Coresteer</title>
      <h1>There is no such page</h1>
      <p>
        Nothing answers to <code>{location.pathname}</code>. The link may be old or mistyped.
      </p>
      <Link to="/fleet">Go to the fleet</Link>
    </main>
  );
}
