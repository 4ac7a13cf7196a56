import { useQuery } from "@tanstack/react-query";
import { useEffect, useMemo, useRef, useState } from "react";
import type { Schemas } from "../api/client";
import { openChangesQuery } from "../api/queries";
import { fetchMissedEnd, isByPerson, useEndedChanges } from "../live/changes";
import { arrivalOf, ChangeBanner, EndedBanner } from "./ChangeBanner";
import styles from "./changeBar.module.css";

const NEVER = "9999-12-31T00:00:00Z";

/** Open changes, the one that ends first in front. */
const byEnd = (a: Schemas["Change"], b: Schemas["Change"]): number =>
  Date.parse(a.deadline_at ?? NEVER) - Date.parse(b.deadline_at ?? NEVER);

/**
 * The change that awaits a person's confirmation and ends first, on every page, and the others on request. An ended
 * change stays for a few seconds.
 */
export function ChangeBanners() {
  const all = useQuery(openChangesQuery).data?.changes;
  const open = useMemo(() => all?.filter(isByPerson).toSorted(byEnd), [all]);
  open?.forEach(arrivalOf); // of those that are not shown yet, too
  const ended = useEndedChanges().filter(isByPerson);
  const [areAllShown, setAllShown] = useState(false);
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
  if (!open?.length && !ended.length) return null;
  const [first, ...others] = open ?? [];
  const more = others.length > 0 && (
    <button
      type="button"
      className={styles.more}
      aria-expanded={areAllShown}
      aria-label={`${others.length} more unconfirmed`}
      onClick={() => setAllShown(!areAllShown)}
    >
      +{others.length}
    </button>
  );
  return (
    <section className={styles.bars} aria-label="Unconfirmed changes">
      {first && <ChangeBanner key={first.id} change={first} more={more} />}
      {areAllShown && others.map((change) => <ChangeBanner key={change.id} change={change} />)}
      {ended.map((change) => (
        <EndedBanner key={change.id} change={change} />
      ))}
    </section>
  );
}
