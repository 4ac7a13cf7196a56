import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef } from "react";
import { openChangesQuery } from "../api/queries";
import { takeMissedEnd, useEndedChanges } from "../live/changes";
import { ChangeBanner, EndedBanner } from "./ChangeBanner";
import classes from "./shell.module.css";

/** One line for each change that waits for a person, on every page; ended ones stay for a few seconds. */
export function ChangeBanners() {
  const open = useQuery(openChangesQuery).data?.changes;
  const ended = useEndedChanges();
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
  if (!open?.length && !ended.length) return null;
  return (
    <section className={classes.banners} aria-label="Changes under way">
      {open?.map((change) => (
        <ChangeBanner key={change.id} change={change} />
      ))}
      {ended.map((change) => (
        <EndedBanner key={change.id} change={change} />
      ))}
    </section>
  );
}
