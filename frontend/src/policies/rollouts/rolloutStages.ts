import type { Rollout } from "../types";

export type Stage = {
  label: string;
  nodes: number[];
  state:
    | "passed"
    | "passed, not compared"
    | "passed without figures"
    | "in progress"
    | "updated"
    | "pending"
    | "not reached"
    | "rolled back";
  tone: string;
};

/** A stage passes on figures; without them it passes because no guardrail was violated, which is less. */
const PASSED: Record<Rollout["evidence"][number]["basis"], Pick<Stage, "state" | "tone">> = {
  compared: { state: "passed", tone: "ok" },
  before_after: { state: "passed, not compared", tone: "" },
  none: { state: "passed without figures", tone: "muted" },
};

/** Every stage of a rollout with its state. */
export function stagesOf({
  state,
  stage,
  stages,
  done_nodes,
  evidence,
}: Pick<Rollout, "state" | "stage" | "stages" | "done_nodes"> & {
  evidence: Pick<Rollout["evidence"][number], "stage" | "basis">[];
}): Stage[] {
  const done = new Set(done_nodes);
  const rolling = state === "canary" || state === "batches";
  return stages.map((nodes, index): Stage => {
    const label = index === 0 ? "canary" : `batch ${index}`;
    const passed = nodes.every((node) => done.has(node));
    if (state === "rolled_back")
      return index <= stage
        ? { label, nodes, state: "rolled back", tone: "warn" }
        : { label, nodes, state: "not reached", tone: "muted" };
    if (passed) return { label, nodes, ...PASSED[evidence.find((one) => one.stage === index)?.basis ?? "none"] };
    if (index > stage) return { label, nodes, state: rolling ? "pending" : "not reached", tone: "muted" };
    return { label, nodes, state: rolling ? "in progress" : "updated", tone: "change" };
  });
}
