import { Button } from "@mantine/core";
import { Link, useRouter } from "@tanstack/react-router";
import { useEffect } from "react";
import { ApiProblem, errorMessage } from "../api/client";
import styles from "./shell.module.css";

const RETRY_MS = 3_000;

/** Replaces a page that failed: the error, and what to do. */
export function ErrorPage({ error }: { error: unknown }) {
  const router = useRouter();
  const transient = error instanceof ApiProblem && (error.isUnreachable || error.isDatabaseUnreachable);
  useEffect(() => {
    if (!transient) return;
    const timer = setInterval(() => void router.invalidate(), RETRY_MS);
    return () => clearInterval(timer);
  }, [transient, router]);
  return (
    <main className={styles.alone}>
      <title>Error · Coresteer</title>
      <h1>{transient ? "Waiting for the backend" : "This page failed"}</h1>
      <p role="alert">{errorMessage(error)}</p>
      <p className="muted">
        {transient
          ? "Retrying every 3 s."
          : "No node was changed. Try again or reload the page; if the error persists, report the message above to your administrator."}
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

/** Shown for a URL without a page, within the frame. */
export function NotFoundPage() {
  return (
    <div className={styles.alone}>
      <title>Not found · Coresteer</title>
      <h1>Page not found</h1>
      <p>
        No page at <code>{location.pathname}</code>. The link may be outdated or mistyped.
      </p>
      <p className={styles.byKey}>
        Press <kbd className="kbd">⌘K</kbd> or <kbd className="kbd">Ctrl K</kbd> to search for a node, a policy or a
        page.
      </p>
      <Link to="/fleet">Go to the fleet</Link>
    </div>
  );
}
