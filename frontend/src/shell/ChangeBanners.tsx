import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import type { Schemas } from "../api/client";
import { openChangesQuery } from "../api/queries";
import { RunningBanners, useRunning } from "../experiments/RunningBanner";
import { fetchMissedEnd, useEndedChanges } from "../live/changes";
import { ChangeBanner, EndedBanner } from "./ChangeBanner";
import styles from "./shell.module.css";

// Changes of policies and experiments need no confirmation by a person, and may be many.
const isByPerson = ({ policy_id, experiment_id }: Schemas["Change"]) => policy_id === null && experiment_id === null;

/** One line per change that awaits a person's confirmation, on every page; ended changes stay for a few seconds. */
export function ChangeBanners() {
  const all = useQuery(openChangesQuery).data?.changes;
  const open = useMemo(() => all?.filter(isByPerson), [all]);
  const ended = useEndedChanges().filter(isByPerson);
  const running = useRunning();
  const before = useRef<string[]>([]);
  useEffect(() => {
    if (open === undefined) return;
    const ids = open.map((change) => change.id);
    for (const id of before.current) {
      // On failure the outcome is not shown; nothing else depends on it.
      if (!ids.includes(id)) fetchMissedEnd(id).catch(() => undefined);
    }
    before.current = ids;
  }, [open]);
  if (!open?.length && !ended.length && !running.length) return null;
  return (
    <section className={styles.banners} aria-label="Unconfirmed changes and running experiments">
      <RunningBanners running={running} />
      {open?.map((change) => (
        <ChangeBanner key={change.id} change={change} />
      ))}
      {ended.map((change) => (
        <EndedBanner key={change.id} change={change} />
      ))}
    </section>
  );
}
