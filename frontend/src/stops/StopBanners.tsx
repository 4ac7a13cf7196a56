import { Button } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, unwrap } from "../api/client";
import { queryClient } from "../api/queries";
import { useHasRole } from "../auth/me";
import { ConfirmDialog } from "../components/ConfirmDialog";
import { formatCount } from "../lib/format";
import { clock, zoneName } from "../lib/time";
import { type Stop, stopsQuery } from "./queries";
import styles from "./stops.module.css";
import { afterLift, consequence, nodesOf, progress, settingsOf, where } from "./words";

/** The sign of a stop: an octagon with two bars. */
export function StopIcon() {
  return (
    <svg className={styles.icon} viewBox="0 0 17 17" fill="none" stroke="currentColor" strokeWidth="1.6" aria-hidden>
      <path d="M5.5 1.5h6l4 4v6l-4 4h-6l-4-4v-6z" />
      <path d="M6.5 6v5M10.5 6v5" />
    </svg>
  );
}

/** The stops of enforcement in force, on every page, until an administrator lifts them. */
export function StopBanners() {
  const stops = useQuery(stopsQuery).data ?? [];
  if (stops.length === 0) return null;
  return (
    <section aria-label="Stops of enforcement">
      {stops.map((stop) => (
        <StopBanner key={stop.id} stop={stop} />
      ))}
    </section>
  );
}

function StopBanner({ stop }: { stop: Stop }) {
  const isAdmin = useHasRole("admin");
  const [asked, setAsked] = useState<"lift" | "restore" | null>(null);
  const began = Date.parse(stop.created_at);
  return (
    <div className={styles.bar} data-stop={stop.id}>
      <StopIcon />
      <div className={styles.what}>
        <b className="bad">Enforcement is stopped {where(stop)}</b> · {consequence(stop)}
        <small>
          {stop.created_by}, {clock(began)} {zoneName(began)}
          {stop.reason !== "" && ` · “${stop.reason}”`} · {progress(stop)} · people can still change settings
        </small>
      </div>
      {isAdmin && !stop.restore && <Button onClick={() => setAsked("restore")}>Restore everything…</Button>}
      {isAdmin && (
        <Button variant="filled" onClick={() => setAsked("lift")}>
          Lift the stop…
        </Button>
      )}
      {asked !== null && <Confirm stop={stop} action={asked} onClose={() => setAsked(null)} />}
    </div>
  );
}

function Confirm({ stop, action, onClose }: { stop: Stop; action: "lift" | "restore"; onClose: () => void }) {
  const command = useMutation({
    mutationFn: async () => {
      const params = { path: { stop_id: stop.id } };
      if (action === "lift") await unwrap(api.POST("/api/v1/stops/{stop_id}/lift", { params }));
      else await unwrap(api.POST("/api/v1/stops/{stop_id}/restore", { params }));
    },
    onSettled: () => queryClient.invalidateQueries({ queryKey: stopsQuery.queryKey }),
    onSuccess: onClose,
  });
  const nodes = formatCount(nodesOf(stop.effect), "node");
  const settings = formatCount(settingsOf(stop.effect), "setting");
  const isLift = action === "lift";
  return (
    <ConfirmDialog
      title={isLift ? "Lift the stop" : "Restore everything"}
      action={isLift ? `Lift on ${nodes}` : `Restore ${settings}`}
      pending={command.isPending}
      error={command.error}
      onConfirm={() => command.mutate()}
      onClose={onClose}
    >
      {isLift ? (
        <>
          <p>{afterLift(stop.effect)}</p>
          <p>Nodes restore what policies that were disabled meanwhile had set. Rollouts begin their stage anew.</p>
        </>
      ) : (
        <p>
          {settings} on {nodes} get the values that Coresteer found, also those that people have set. Enforcement stays
          stopped.
        </p>
      )}
    </ConfirmDialog>
  );
}
