import * as v from "valibot";
import { MAX_BACKTEST_RANGE_S } from "../api/constants";
import { filledText, param, positiveInteger, validated, withRange } from "../lib/searchParams";

/** The nodes of the preview, `3,17`; a few live ones when absent. */
const nodes = param(v.pipe(v.string(), v.regex(/^\d+(,\d+)*$/)));

const PolicySearchSchema = v.pipe(
  v.object({
    /** The open tab; the overview when absent. Older links call it "proof", and the backtest "replay". */
    tab: param(
      v.pipe(
        v.picklist(["overview", "nodes", "versions", "rollout", "backtest", "edit", "proof", "replay"]),
        v.transform((tab) => (tab === "replay" ? "backtest" : tab === "proof" ? "overview" : tab)),
      ),
    ),
    /** The version that is edited, proved, compared, rolled out or tested; the newest when absent. */
    version: param(positiveInteger),
    /** The version that it is compared with; its predecessor when absent. */
    diff: param(positiveInteger),
    nodes,
    /** The metric whose effect is drawn over time; the primary one when absent. */
    metric: param(filledText),
    /** The label by whose values the effect is grouped. */
    label: param(filledText),
    /** The node of the backtest. */
    node: param(positiveInteger),
    /** The backtest's range in Unix milliseconds. */
    from: param(positiveInteger),
    to: param(positiveInteger),
  }),
  v.transform(withRange((lengthMs) => lengthMs > 0 && lengthMs <= MAX_BACKTEST_RANGE_S * 1000)),
);

/** The policy page's part of the URL. */
export type PolicySearch = v.InferOutput<typeof PolicySearchSchema>;
export type Tab = NonNullable<PolicySearch["tab"]>;

export const validatePolicySearch = validated(PolicySearchSchema);
export const validateNewPolicySearch = validated(
  v.object({
    kind: param(filledText),
    nodes,
    /** The host name of the only node that the form is filled with. */
    hostname: param(filledText),
    /** The excluded CPUs that the form is filled with, for a kind that has this field. */
    exclude: param(filledText),
  }),
);
