import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef } from "react";
import type { Schemas } from "../api/client";
import { openChangesQuery } from "../api/queries";
import { RunningBanners, useRunning } from "../experiments/RunningBanner";
import { takeMissedEnd, useEndedChanges } from "../live/changes";
import { ChangeBanner, EndedBanner } from "./ChangeBanner";
import styles from "./shell.module.css";

// A policy's and an experiment's changes keep or undo themselves, and there may be many at any time.
const ofAPerson = ({ policy_id, experiment_id }: Schemas["Change"]) => policy_id === null && experiment_id === null;

/** One line for each change that waits for a person, on every page; ended ones stay for a few seconds. */
export function ChangeBanners() {
  const all = useQuery(openChangesQuery).data?.changes;
  const open = useMemo(() => all?.filter(ofAPerson), [all]);
  const ended = useEndedChanges().filter(ofAPerson);
  const running = useRunning();
  const before = useRef<string[]>([]);
  useEffect(() => {
    if (open === undefined) return;
    const ids = open.map((change) => change.id);
    for (const id of before.current) {
      // Asking again is for the next connection: a failure here only means that the end is not shown.
      if (!ids.includes(id)) takeMissedEnd(id).catch(() => undefined);
    }
    before.current = ids;
  }, [open]);
  if (!open?.length && !ended.length && !running.length) return null;
  return (
    <section className={styles.banners} aria-label="Changes under way">
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
