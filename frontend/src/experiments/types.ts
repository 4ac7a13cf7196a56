import type { Schemas } from "../api/client";

export type Experiment = Schemas["Experiment"];
export type Summary = Schemas["ExperimentSummary"];
export type State = Schemas["ExperimentState"];
export type Template = Schemas["Template"];
export type Preview = Schemas["ExperimentPreview"];
/** A specification in a response: every field is present. */
export type Spec = Experiment["spec"];
/** A specification in a request: fields with a default may be absent. */
export type SpecIn = Schemas["ExperimentRequest"]["spec"];
type Workload = Spec["workload"];
export type WorkloadType = Workload["type"];
export type Kind = Spec["kind"];
export type Level = Spec["factors"][number]["levels"][number];
export type RecordedRun = Experiment["runs"][number];
type Analysis = Experiment["analysis"];
export type Comparison = Analysis["comparisons"][number];
export type Interval = NonNullable<Comparison["effect"]>;
export type Verdict = Comparison["verdict"];
/** A paper's value next to this node's. */
export type Published = Experiment["published"][number];
export type Metric = Experiment["metrics"][string];
