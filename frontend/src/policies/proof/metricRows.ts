import { GUARDRAIL_LABELS, type GuardrailMetric } from "../../lib/metrics";
import { limitText } from "../kinds";
import type { PolicyBody } from "../types";
import type { Row } from "./Effects";
import type { VersionProof } from "./types";

/** The metrics of a version with their limits; also those that have a limit, but are not measured in blocks. */
export function metricRows({ metrics }: Pick<VersionProof, "metrics">, body: PolicyBody | undefined): Row[] {
  const limits = body?.guardrails ?? [];
  const limitOf = (metric: string, primary: boolean) =>
    [
      ...limits.filter((one) => one.metric === metric).map(limitText),
      ...(primary ? [] : [body?.proof.roll_back ? "no worse, else rolled back" : "no worse, else reported"]),
    ].join("; ");
  const measured = metrics.map((one) => ({
    name: one.label,
    tag: one.primary ? "primary" : "guardrail",
    limit: limitOf(one.metric, one.primary),
    ...one,
  }));
  const others = limits.filter(({ metric }) => !metrics.some((one) => one.metric === metric));
  return [
    ...measured,
    ...others.map((limit) => ({
      name: GUARDRAIL_LABELS[limit.metric as GuardrailMetric]?.label ?? limit.metric,
      tag: "guardrail",
      limit: limitText(limit),
      finding: "no_evidence" as const,
      effect: null,
      sentence: "It limits each new change, and is not measured in blocks.",
    })),
  ];
}
