import { Button } from "@mantine/core";
import { useMutation } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useMemo, useState } from "react";
import { answer, api, type Schemas, sentenceOf } from "../api/client";
import { signedOut } from "../api/queries";
import { useHasRole } from "../auth/me";
import { SimulatedTagOf } from "../components/NodeTags";
import { countdown } from "../lib/format";
import { applyChangeUpdate } from "../live/changes";
import { MeasuredSoFar } from "./MeasuredSoFar";
import styles from "./shell.module.css";

type Change = Schemas["Change"];
type Decision = "confirm" | "rollback" | "extend";

const TICK_MS = 250;
const EXTEND_S = 120;
const RADIUS = 8;
const ROUND = 2 * Math.PI * RADIUS;

/** Seconds that remain, of an unconfirmed change or an experiment, counted by a clock that nobody can set. */
export function useRemaining(change: Pick<Change, "remaining_s">): number | null {
  // biome-ignore lint/correctness/useExhaustiveDependencies: each telling of the change is as of its arrival
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
        strokeDasharray={`${ROUND * Math.min(1, share)} ${ROUND}`}
      />
    </svg>
  );
}

function decide(decision: Decision, changeId: string) {
  const params = { path: { change_id: changeId } };
  if (decision === "confirm") return answer(api.POST("/api/changes/{change_id}/confirm", { params }));
  if (decision === "rollback") return answer(api.POST("/api/changes/{change_id}/rollback", { params }));
  return answer(api.POST("/api/changes/{change_id}/extend", { params, body: { seconds: EXTEND_S } }));
}

const ASKED = {
  confirm: "The node is asked to keep it.",
  rollback: "The node is asked to roll it back.",
} as const;

function Standing({ change, remaining }: { change: Change; remaining: number | null }) {
  const node = (
    <>
      <Link to="/nodes/$nodeId" params={{ nodeId: change.node_id }}>
        {change.node_name}
      </Link>
      <SimulatedTagOf nodeId={change.node_id} />
    </>
  );
  if (change.state === "applying") return <>Being applied on {node}, then read back.</>;
  if (remaining === null) return <>Applied on {node}; it waits to be kept.</>;
  if (remaining === 0) return <>Time is up on {node}; it is being put back.</>;
  return (
    <>
      Applied on {node}; it returns in <span className={styles.remaining}>{countdown(remaining)}</span> unless kept.
    </>
  );
}

/** A change that waits to be kept: what it is, when it returns, what it did so far, and what to do with it. */
export function ChangeBanner({ change }: { change: Change }) {
  const remaining = useRemaining(change);
  const mayDecide = useHasRole("operator");
  const decision = useMutation({
    mutationFn: (wanted: Decision) => decide(wanted, change.id),
    onSuccess: applyChangeUpdate,
    onError: signedOut,
  });
  const waits = change.state === "unconfirmed";
  const asked = decision.isSuccess && decision.variables !== "extend" ? ASKED[decision.variables] : null;
  const button = (wanted: Decision, label: string, filled = false) => (
    <Button
      variant={filled ? "filled" : "default"}
      disabled={!mayDecide || decision.isPending}
      loading={decision.isPending && decision.variables === wanted}
      onClick={() => decision.mutate(wanted)}
    >
      {label}
    </Button>
  );
  return (
    <div className={styles.banner} data-change={change.id}>
      <Ring share={remaining === null ? 1 : remaining / change.confirm_timeout_s} />
      <div className={styles.what}>
        <b className="change">{change.sentence}</b> <Standing change={change} remaining={remaining} />
        <div className={styles.measured}>
          {waits && <MeasuredSoFar change={change} />}
          {asked !== null && <span className="muted"> {asked}</span>}
        </div>
        {decision.isError && (
          <div className="bad" role="alert">
            {sentenceOf(decision.error)}
          </div>
        )}
      </div>
      {waits && !mayDecide && <span className="muted">Operators can keep it or roll it back.</span>}
      {waits && button("confirm", "Keep", true)}
      {waits && button("rollback", "Roll back now")}
      {waits && button("extend", "+2 min")}
    </div>
  );
}

const RETURNED = {
  user: "It was rolled back by a person.",
  timeout: "Nobody kept it in time, so it returned by itself.",
  guardrail: "A guardrail was passed, so it was rolled back at once.",
  lost_backend: "The node lost the backend while it waited, so it was rolled back.",
  agent_restart: "The agent restarted while it waited, so it was rolled back.",
  error: "It was rolled back after an error.",
} as const;

function endOf(change: Change): string {
  if (change.state === "confirmed") return "Kept.";
  if (change.state === "rolled_back") return change.ended_by ? RETURNED[change.ended_by] : "It was rolled back.";
  return "It failed.";
}

/** How a change ended. */
export function EndedBanner({ change }: { change: Change }) {
  const last = change.steps.at(-1)?.sentence;
  const tone = change.state === "confirmed" ? "ok" : change.state === "failed" ? "bad" : "muted";
  return (
    <div className={styles.ended} role="status" data-change={change.id}>
      <div className={styles.what}>
        <b>{change.sentence}</b> <span className={tone}>{endOf(change)}</span>{" "}
        <span className="muted">
          {change.node_name}
          <SimulatedTagOf nodeId={change.node_id} />
          {last ? `: ${last}` : ""}
        </span>
      </div>
    </div>
  );
}
