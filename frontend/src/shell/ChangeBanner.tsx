import { Button } from "@mantine/core";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { type ReactNode, useEffect, useState } from "react";
import { api, errorMessage, type Schemas, unwrap } from "../api/client";
import { BOUNDS } from "../api/constants";
import { handleSignedOut, nodeSummaryQuery } from "../api/queries";
import { useRefusal } from "../auth/me";
import { ObservedInBrief, ObservedSoFar, TestLink } from "../changes/Observed";
import { changeWords } from "../changes/words";
import { SimulatedTagOf } from "../components/NodeTags";
import { countdown, duration } from "../lib/format";
import { clock } from "../lib/time";
import { applyChangeUpdate } from "../live/changes";
import styles from "./changeBar.module.css";

type Change = Schemas["Change"];
type Command = "confirm" | "rollback" | "extend";

const TICK_MS = 250;
const EXTEND_S = BOUNDS.ExtendRequest.seconds.default;
const LAST_S = 15;
const RADIUS = 8;
const CIRCUMFERENCE = 2 * Math.PI * RADIUS;

type Timed = Partial<Pick<Change, "remaining_s">>;
const arrivals = new WeakMap<Timed, number>();

/** When an answer arrived, by the monotonic clock in milliseconds: its remaining_s counts from then. */
export function arrivalOf(answer: Timed): number {
  const arrived = arrivals.get(answer) ?? performance.now();
  arrivals.set(answer, arrived);
  return arrived;
}

/** Seconds left of what an answer is about, such as a change, by the monotonic clock; null without a deadline. */
export function useRemaining(change: Timed): number | null {
  const arrived = arrivalOf(change);
  const [now, setNow] = useState(() => performance.now());
  const left = change.remaining_s ?? null; // a backend of the previous release does not say it of rollouts
  const running = left !== null;
  useEffect(() => {
    if (!running) return;
    const timer = setInterval(() => setNow(performance.now()), TICK_MS);
    return () => clearInterval(timer);
  }, [running]);
  if (left === null) return null;
  return Math.max(0, left - Math.max(0, now - arrived) / 1000);
}

/** A ring that empties with the share of time left. */
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
  if (command === "confirm") return unwrap(api.POST("/api/v1/changes/{change_id}/confirm", { params }));
  if (command === "rollback") return unwrap(api.POST("/api/v1/changes/{change_id}/rollback", { params }));
  return unwrap(api.POST("/api/v1/changes/{change_id}/extend", { params, body: { seconds: EXTEND_S } }));
}

const REQUESTED = {
  confirm: "Confirmation requested.",
  rollback: "Undo requested.",
} as const;

/** The time until an unconfirmed change rolls back; its end is announced to screen readers once. */
function Clock({ change }: { change: Change }) {
  const remaining = useRemaining(change);
  const isLast = remaining !== null && remaining <= LAST_S;
  const text = change.state === "applying" ? "applying" : remaining === null ? "unconfirmed" : countdown(remaining);
  return (
    <span className={styles.clock} data-last={isLast || undefined}>
      <Ring share={remaining === null ? 1 : remaining / change.confirm_timeout_s} />
      <b>{text}</b>
      <span className="visually-hidden" role="alert">
        {isLast && `Rolls back in ${LAST_S} seconds unless confirmed: ${change.sentence}`}
      </span>
    </span>
  );
}

function What({ change }: { change: Change }) {
  const { what, values } = changeWords(change.plan.actions);
  const isHere = useParams({ strict: false }).nodeId === change.node_id;
  const applied = change.applied_at ?? change.created_at;
  return (
    <div className={styles.what}>
      <div title={change.sentence}>
        <Link to="/changes" search={{ change: change.id }}>
          {!isHere && <span className={styles.long}>{change.node_name}: </span>}
          {what} <span className={styles.values}>{values}</span>
        </Link>
        <span className={styles.long}>
          <SimulatedTagOf nodeId={change.node_id} />
        </span>
      </div>
      <div>
        <small className={`muted ${styles.long}`}>
          {change.created_by}, {clock(Date.parse(applied))} · rolls back unless confirmed
        </small>
        <small className={styles.short}>{change.node_name}</small>
      </div>
      <div className={styles.short}>
        <small>
          <ObservedInBrief change={change} />
        </small>
      </div>
    </div>
  );
}

/** An open change: the time until it rolls back, what it is, the effect measured so far, and Confirm, Undo, Extend. */
export function ChangeBanner({ change, more }: { change: Change; more?: ReactNode }) {
  const labels = useQuery(nodeSummaryQuery(change.node_id)).data?.labels;
  const refusal = useRefusal("Confirming or undoing", labels);
  const command = useMutation({
    mutationFn: (wanted: Command) => send(wanted, change.id),
    onSuccess: applyChangeUpdate,
    onError: handleSignedOut,
  });
  const isUnconfirmed = change.state === "unconfirmed";
  const requested = command.isSuccess && command.variables !== "extend" ? REQUESTED[command.variables] : null;
  const button = (wanted: Command, label: string, className = "") => (
    <Button
      className={className}
      variant={wanted === "confirm" ? "filled" : "default"}
      disabled={refusal !== null || command.isPending}
      title={refusal ?? undefined}
      loading={command.isPending && command.variables === wanted}
      onClick={() => command.mutate(wanted)}
    >
      {label}
    </Button>
  );
  return (
    <div className={styles.bar} data-change={change.id}>
      <Clock change={change} />
      {more}
      <What change={change} />
      <div className={styles.figures}>
        {command.isError ? (
          <span className={`${styles.figure} bad`} role="alert">
            {errorMessage(command.error)}
          </span>
        ) : requested !== null ? (
          <span className={`${styles.figure} muted`}>{requested}</span>
        ) : (
          isUnconfirmed && <ObservedSoFar change={change} className={styles.figure} />
        )}
      </div>
      {isUnconfirmed && (
        <div className={styles.buttons}>
          {refusal !== null && <span className={`muted ${styles.long}`}>{refusal}</span>}
          {button("confirm", "Confirm", styles.confirm)}
          {button("rollback", "Undo")}
          {button("extend", `+${duration(EXTEND_S)}`, styles.long)}
          <span className={styles.long}>
            <TestLink change={change} />
          </span>
        </div>
      )}
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
  const { what, values } = changeWords(change.plan.actions);
  const lastStep = change.steps.at(-1)?.sentence;
  const outcome = outcomeOf(change);
  const tone = change.state === "confirmed" ? "ok" : change.state === "failed" ? "bad" : "muted";
  return (
    <div className={styles.ended} role="status" data-change={change.id}>
      <div className={styles.what}>
        <div title={change.sentence}>
          <b>
            {change.node_name}: {what} <span className={styles.values}>{values}</span>
          </b>
          <SimulatedTagOf nodeId={change.node_id} />
        </div>
        <div title={lastStep}>
          <small>
            <span className={tone}>{outcome}</span> {lastStep !== outcome && <span className="muted">{lastStep}</span>}{" "}
            <Link to="/changes" search={{ change: change.id }}>
              Details
            </Link>
          </small>
        </div>
      </div>
    </div>
  );
}
