import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { handleSignedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { SimulatedTagOf } from "../components/NodeTags";
import { countdown, duration } from "../lib/format";
import { applyChangeUpdate } from "../live/changes";
import { MeasuredSoFar } from "./MeasuredSoFar";
import styles from "./shell.module.css";

type Change = Schemas["Change"];
type Command = "confirm" | "rollback" | "extend";

const TICK_MS = 250;
const EXTEND_S = BOUNDS.ExtendRequest.seconds.default;
const RADIUS = 8;
const CIRCUMFERENCE = 2 * Math.PI * RADIUS;

/** Seconds until an unconfirmed change or an experiment ends, by the monotonic clock; null without a deadline. */
export function useRemaining(change: Pick<Change, "remaining_s">): number | null {
  // biome-ignore lint/correctness/useExhaustiveDependencies: remaining_s counts from the arrival of each update
  const arrived = useMemo(() => performance.now(), [change]);
  const [now, setNow] = useState(arrived);
  const running = change.remaining_s !== null;
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => setNow(performance.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [running]);
  if (change.remaining_s === null) return null;
  return Math.max(0, change.remaining_s - Math.max(0, now - arrived) / 1000);
}

function Ring({ share }: { share: number }) {
  return (
    <svg className={styles.ring} viewBox="0 0 20 20" aria-hidden="true">
      <circle cx="10" cy="10" r={RADIUS} />
      <circle
        cx="10"
        cy="10"
        r={RADIUS}
        transform="rotate(-90 10 10)"
        strokeDasharray={`${CIRCUMFERENCE * Math.min(1, share)} ${CIRCUMFERENCE}`}
      />
    </svg>
  );
}

function send(command: Command, changeId: string) {
  const params = { path: { change_id: changeId } };
  if (command === "confirm") return unwrap(api.POST("/api/changes/{change_id}/confirm", { params }));
  if (command === "rollback") return unwrap(api.POST("/api/changes/{change_id}/rollback", { params }));
  return unwrap(api.POST("/api/changes/{change_id}/extend", { params, body: { seconds: EXTEND_S } }));
}

const REQUESTED = {
  confirm: "Confirmation requested.",
  rollback: "Rollback requested.",
} as const;

function Status({ change, remaining }: { change: Change; remaining: number | null }) {
  const node = (
    <>
      <Link to="/nodes/$nodeId" params={{ nodeId: change.node_id }}>
        {change.node_name}
      </Link>
      <SimulatedTagOf nodeId={change.node_id} />
    </>
  );
  if (change.state === "applying") return <>Applying on {node}, then reading back.</>;
  if (remaining === null) return <>Applied on {node}, unconfirmed.</>;
  if (remaining === 0) return <>Confirmation timeout on {node}; rolling back.</>;
  return (
    <>
      Applied on {node}; rolls back in <span className={styles.remaining}>{countdown(remaining)}</span> unless
      confirmed.
    </>
  );
}

/** An open change: its sentence, the time until rollback, the effect measured so far, and Confirm, Roll back, Extend. */
export function ChangeBanner({ change }: { change: Change }) {
  const remaining = useRemaining(change);
  const isOperator = useHasRole("operator");
  const command = useMutation({
    mutationFn: (wanted: Command) => send(wanted, change.id),
    onSuccess: applyChangeUpdate,
    onError: handleSignedOut,
  });
  const isUnconfirmed = change.state === "unconfirmed";
  const requested = command.isSuccess && command.variables !== "extend" ? REQUESTED[command.variables] : null;
  const button = (wanted: Command, label: string, filled = false) => (
    <Button
      variant={filled ? "filled" : "default"}
      disabled={!isOperator || command.isPending}
      loading={command.isPending && command.variables === wanted}
      onClick={() => command.mutate(wanted)}
    >
      {label}
    </Button>
  );
  return (
    <div className={styles.banner} data-change={change.id}>
      <Ring share={remaining === null ? 1 : remaining / change.confirm_timeout_s} />
      <div className={styles.what}>
        <b className="change">{change.sentence}</b> <Status change={change} remaining={remaining} />
        <div className={styles.measured}>
          {isUnconfirmed && <MeasuredSoFar change={change} />}
          {requested !== null && <span className="muted"> {requested}</span>}
        </div>
        {command.isError && (
          <div className="bad" role="alert">
            {errorMessage(command.error)}
          </div>
        )}
      </div>
      {isUnconfirmed && !isOperator && <span className="muted">Operators can confirm or roll back.</span>}
      {isUnconfirmed && button("confirm", "Confirm", true)}
      {isUnconfirmed && button("rollback", "Roll back")}
      {isUnconfirmed && button("extend", `+${duration(EXTEND_S)}`)}
    </div>
  );
}

const ROLLED_BACK = {
  user: "Rolled back by a user.",
  guardrail: "Guardrail violated: rolled back.",
  lost_backend: "Rolled back: the node lost the backend before confirmation.",
  agent_restart: "Rolled back: the agent restarted before confirmation.",
  error: "Rolled back after an error.",
} as const;

function outcomeOf({ state, ended_by, applied_at, deadline_at, confirm_timeout_s }: Change): string {
  if (state === "confirmed") return "Confirmed.";
  if (state !== "rolled_back") return "Failed.";
  if (ended_by === null) return "Rolled back.";
  if (ended_by !== "timeout") return ROLLED_BACK[ended_by];
  // An extension moves the deadline.
  const known = applied_at !== null && deadline_at !== null;
  const timeoutS = known ? (Date.parse(deadline_at) - Date.parse(applied_at)) / 1000 : confirm_timeout_s;
  return `Rolled back: not confirmed within ${duration(timeoutS)}.`;
}

/** The outcome of an ended change: confirmed, rolled back with its cause, or failed. */
export function EndedBanner({ change }: { change: Change }) {
  const lastStep = change.steps.at(-1)?.sentence;
  const tone = change.state === "confirmed" ? "ok" : change.state === "failed" ? "bad" : "muted";
  return (
    <div className={styles.ended} role="status" data-change={change.id}>
      <div className={styles.what}>
        <b>{change.sentence}</b> <span className={tone}>{outcomeOf(change)}</span>{" "}
        <span className="muted">
          {change.node_name}
          <SimulatedTagOf nodeId={change.node_id} />
          {lastStep ? `: ${lastStep}` : ""}
        </span>
      </div>
    </div>
  );
}
